package appc

import (
	"math/big"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Quantity is an amount of a resource, exactly as it was written.
type Quantity struct{ r *big.Rat }

// The number before the suffix. Length and exponent are bounded so that a
// manifest can't ask for a number of a gigabyte.
var quantityPattern = pattern(`^([0-9]{1,30})(\.[0-9]{1,30})?(?:[eE]([+-]?[0-9]{1,2}))?$`)

// ParseQuantity reads a plain or decimal number, or one with a suffix: m for
// thousandths, k K M G T P E, or Ki Mi Gi Ti Pi Ei. Negative ones are refused.
func ParseQuantity(s string) (Quantity, error) {
	number, scale := s, big.NewRat(1, 1)
	for _, suffix := range suffixes {
		if rest, ok := strings.CutSuffix(s, suffix.name); ok && suffix.name != "" {
			number, scale = rest, suffix.scale()
			break
		}
	}
	if !quantityPattern().MatchString(number) {
		return Quantity{}, errs.Newf(errs.Usage, "%q: not a quantity", s)
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return Quantity{}, errs.Newf(errs.Usage, "%q: not a quantity", s)
	}
	return Quantity{r.Mul(r, scale)}, nil
}

// Ceil is the quantity in whole units, rounded up.
func (q Quantity) Ceil() (int64, error) { return ceil(q.r) }

// Milli is the quantity in thousandths, rounded up.
func (q Quantity) Milli() (int64, error) {
	return ceil(new(big.Rat).Mul(q.r, big.NewRat(1000, 1)))
}

type suffix struct {
	name      string
	base, exp int64
}

// Longer ones first: "Mi" ends in neither "m" nor "M", but "Ei" must not be
// taken for an exponent.
var suffixes = []suffix{
	{"Ki", 1024, 1}, {"Mi", 1024, 2}, {"Gi", 1024, 3}, {"Ti", 1024, 4}, {"Pi", 1024, 5}, {"Ei", 1024, 6},
	{"k", 1000, 1}, {"K", 1000, 1}, {"M", 1000, 2}, {"G", 1000, 3}, {"T", 1000, 4}, {"P", 1000, 5}, {"E", 1000, 6},
	{"m", 1000, -1},
}

func (s suffix) scale() *big.Rat {
	if s.exp < 0 {
		return big.NewRat(1, s.base)
	}
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(s.base), big.NewInt(s.exp), nil))
}

func ceil(r *big.Rat) (int64, error) {
	quo, rem := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rem.Sign() > 0 {
		quo.Add(quo, big.NewInt(1))
	}
	if !quo.IsInt64() {
		return 0, errs.Newf(errs.Usage, "quantity too large")
	}
	return quo.Int64(), nil
}
