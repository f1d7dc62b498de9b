package main

// isolatorLines say what became of isolators, the pod's own once.
func isolatorLines(line func(string, any), v view) {
	told := false
	for _, a := range v.apps {
		if a.status == nil {
			continue
		}
		for _, r := range a.status.Isolators {
			switch {
			case !r.Pod:
				line("app-"+a.name+"-isolator", plain(r.String()))
			case !told:
				line("isolator", plain(r.String()))
			}
		}
		told = told || len(a.status.Isolators) > 0
	}
}

// memoryLines say how an app ended that memory was the end of.
func memoryLines(line func(string, any), a appView) {
	if u := a.status.Usage; a.status.OOMKilled {
		line("app-"+a.name+"-oom-kills", u.OOMKills)
		line("app-"+a.name+"-memory-peak", u.MemoryPeak)
	}
}
