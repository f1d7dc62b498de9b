package kube

import "strings"

// expand replaces $(NAME) by the variable's value. $$ stands for $, so that
// $$(NAME) stays as text; so does a name that is not known.
func expand(s string, vars map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		end := strings.IndexByte(s, ')')
		switch {
		case s[1] == '$':
			b.WriteByte('$')
			s = s[2:]
		case s[1] == '(' && end > 0:
			value, known := vars[s[2:end]]
			if !known {
				value = s[:end+1]
			}
			b.WriteString(value)
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

func expandAll(list []string, vars map[string]string) (out []string) {
	for _, s := range list {
		out = append(out, expand(s, vars))
	}
	return out
}

func escapeAll(list []string) (out []string) {
	for _, s := range list {
		out = append(out, escape(s))
	}
	return out
}

// escape is the inverse for a text in which nothing is to be replaced.
func escape(s string) string {
	if strings.HasSuffix(s, "$") {
		// The last one stands for itself, and two would too.
		return strings.ReplaceAll(s[:len(s)-1], "$", "$$") + "$"
	}
	return strings.ReplaceAll(s, "$", "$$")
}
