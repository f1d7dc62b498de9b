package filter

import (
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Instructions of classic BPF, and where struct seccomp_data has what.
const (
	opLoad   = 0x20
	opAnd    = 0x54
	opReturn = 0x06
	opJump   = 0x05
	jeq      = 0x15
	jgt      = 0x25
	jge      = 0x35

	offCall = 0
	offArch = 4
	offArgs = 16
)

// builder makes the program from its end: jumps only go forward, so what an
// instruction jumps to is there already, and its distance known. Places are
// counted from the end.
type builder struct {
	reversed []Instruction
}

func (b *builder) program() []Instruction {
	all := slices.Clone(b.reversed)
	slices.Reverse(all)
	return all
}

func (b *builder) put(i Instruction) int {
	b.reversed = append(b.reversed, i)
	return len(b.reversed) - 1
}

func (b *builder) load(offset uint32) int { return b.put(Instruction{Code: opLoad, K: offset}) }

// ret answers, with an instruction that is near enough if there is one.
func (b *builder) ret(action uint32) int {
	want := Instruction{Code: opReturn, K: action}
	for i := len(b.reversed) - 1; i >= 0 && i > len(b.reversed)-200; i-- {
		if b.reversed[i] == want {
			return i
		}
	}
	return b.put(want)
}

// near returns a place with the same effect within a jump's reach, with room
// for some instructions before the jump.
func (b *builder) near(place int) int {
	if len(b.reversed)-place < 250 {
		return place
	}
	if i := b.reversed[place]; i.Code == opReturn {
		return b.ret(i.K)
	}
	return b.put(Instruction{Code: opJump, K: uint32(len(b.reversed) - 1 - place)})
}

// jump compares what was loaded and goes to one of two places.
func (b *builder) jump(code uint16, k uint32, yes, no int) int {
	yes = b.near(yes)
	no = b.near(no)
	next := len(b.reversed)
	return b.put(Instruction{Code: code, Jt: uint8(next - 1 - yes), Jf: uint8(next - 1 - no), K: k})
}

// span is a range of call numbers, to the next one's first, with one answer.
type span struct {
	first uint32
	rules []rule // none: the action
	act   uint32
}

// arch makes what comes after the architecture is known: a search for the
// range that the number is in.
func (b *builder) arch(a arch, rules map[uint32][]rule, highest uint32, def, newer uint32) int {
	var spans []span
	add := func(s span) {
		if n := len(spans); n > 0 && s.rules == nil && spans[n-1].rules == nil && spans[n-1].act == s.act {
			return
		}
		spans = append(spans, s)
	}
	next := uint32(0)
	for _, n := range slices.Sorted(maps.Keys(rules)) {
		if n > next {
			add(span{first: next, act: def})
		}
		if one := rules[n]; len(one) == 1 && len(one[0].conditions) == 0 {
			add(span{first: n, act: one[0].action})
		} else {
			add(span{first: n, rules: one})
		}
		next = n + 1
	}
	if next <= highest {
		add(span{first: next, act: def})
	}
	if highest == 0 {
		newer = def // it names none of this architecture's
	}
	add(span{first: max(next, highest+1), act: newer})
	if a.x32 {
		add(span{first: x32Bit, act: retKillProcess})
		add(span{first: ^uint32(0), act: def}) // a tracer's way to skip a call
	}
	if root := b.search(a, spans, def); root != len(b.reversed)-1 {
		b.put(Instruction{Code: opJump, K: uint32(len(b.reversed) - 1 - root)})
	}
	return b.load(offCall)
}

func (b *builder) search(a arch, spans []span, def uint32) int {
	if len(spans) == 1 {
		if spans[0].rules == nil {
			return b.ret(spans[0].act)
		}
		return b.rules(a, spans[0].rules, def)
	}
	half := len(spans) / 2
	high := b.search(a, spans[half:], def)
	low := b.search(a, spans[:half], def)
	return b.jump(jge, spans[half].first, high, low)
}

// rules makes the answer that depends on arguments: the first rule that
// matches, else the default.
func (b *builder) rules(a arch, list []rule, def uint32) int {
	no := b.ret(def)
	for _, r := range slices.Backward(list) {
		yes := b.ret(r.action)
		for _, c := range slices.Backward(r.conditions) {
			yes = b.condition(a, c, yes, no)
		}
		no = yes
	}
	return no
}

// condition compares an argument; all architectures here have the low half
// first.
func (b *builder) condition(a arch, c condition, yes, no int) int {
	low := uint32(offArgs + 8*c.arg)
	value, mask := c.value, ^uint64(0)
	if c.op == specs.OpMaskedEqual {
		mask, value = c.value, c.two&c.value
	}
	halves := [2]uint32{uint32(value), uint32(value >> 32)}
	// Less is not greater or equal, and so on.
	switch c.op {
	case specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual:
		yes, no = no, yes
	default:
	}
	code := uint16(jeq)
	switch c.op {
	case specs.OpGreaterThan, specs.OpLessEqual:
		code = jgt
	case specs.OpGreaterEqual, specs.OpLessThan:
		code = jge
	default:
	}
	b.jump(code, halves[0], yes, no)
	lowHalf := b.masked(low, uint32(mask))
	if !a.wide {
		return lowHalf
	}
	if same := b.jump(jeq, halves[1], lowHalf, no); code != jeq {
		b.jump(jgt, halves[1], yes, same)
	}
	return b.masked(low+4, uint32(mask>>32))
}

func (b *builder) masked(offset, mask uint32) int {
	if mask != ^uint32(0) {
		b.put(Instruction{Code: opAnd, K: mask})
	}
	return b.load(offset)
}
