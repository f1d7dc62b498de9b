# Everything a person types. `go build ./cmd/...` works without it.

VERSION ?= $(shell cat VERSION)
PREFIX  ?= /usr/local
DESTDIR ?=
FUZZTIME ?= 10s

PKG     := github.com/rkt-pods/rkt
LDFLAGS := -s -w -buildid= -X $(PKG)/pkg/version.Version=$(VERSION)
# What stage1 is built with. `make TAGS="libcontainer seccomp runc_nocriu netgo
# osusergo"` builds it with the other launcher, which links libseccomp.
TAGS    := netgo osusergo
# Of both launchers, for tests and linters.
ALLTAGS := seccomp runc_nocriu netgo osusergo
GOFLAGS += -trimpath -buildvcs=false
CC      ?= gcc

# PID 1 of every pod, and what becomes an app: no C library, a few kilobytes.
INITFLAGS := -Os -static -nostdlib -nostartfiles -ffreestanding -fno-stack-protector -fno-builtin \
	-fno-pie -no-pie -fno-asynchronous-unwind-tables -Wall -Wextra -Werror \
	-Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro -s
export GOFLAGS

.PHONY: all
all: bin/rkt bin/rkt-fetch bin/rkt-verify bin/stage1 bin/podinit bin/applaunch bin/rkt-userns bin/rkt-cni

# rkt and its helpers are pure Go; stage1 needs cgo for a C part that must run
# before the Go runtime, and is static so that it runs anywhere.
.PHONY: bin/rkt bin/rkt-fetch bin/rkt-verify bin/stage1
# Where cmd/rkt has a start of its own for the architecture, rkt begins there.
bin/rkt: LDFLAGS += $(if $(wildcard cmd/rkt/start_$(shell go env GOARCH).s),-E main.start)
bin/rkt bin/rkt-fetch bin/rkt-verify:
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/$(@F)

bin/stage1:
	CGO_ENABLED=1 go build -tags '$(TAGS)' -ldflags '$(LDFLAGS) -linkmode external -extldflags -static' -o $@ ./cmd/stage1

# The stock network plugins, as one program with a name for each in bin/cni.
.PHONY: bin/rkt-cni
bin/rkt-cni:
	@mkdir -p bin
	LDFLAGS='-s -w -buildid=' dist/cni/build bin

bin/podinit bin/applaunch: bin/%: stage1/podinit/sys.h
	@mkdir -p bin
	$(CC) $(INITFLAGS) -o $@ stage1/$*/$*.c
bin/rkt-userns: stage0/rootless/userns/userns.c stage1/podinit/sys.h
	@mkdir -p bin
	$(CC) $(INITFLAGS) -o $@ $<
bin/podinit: stage1/podinit/podinit.c
bin/applaunch: stage1/applaunch/applaunch.c stage1/applaunch/inside.h

.PHONY: install
install: all
	install -D -m 0755 bin/rkt $(DESTDIR)$(PREFIX)/bin/rkt
	install -D -m 0755 bin/rkt-verify $(DESTDIR)$(PREFIX)/libexec/rkt/rkt-verify
	install -D -m 0755 bin/rkt-fetch $(DESTDIR)$(PREFIX)/libexec/rkt/rkt-fetch
	install -D -m 0755 bin/stage1 $(DESTDIR)$(PREFIX)/libexec/rkt/stage1
	install -D -m 0755 bin/podinit $(DESTDIR)$(PREFIX)/libexec/rkt/podinit
	install -D -m 0755 bin/rkt-userns $(DESTDIR)$(PREFIX)/libexec/rkt/rkt-userns
	install -D -m 0755 bin/applaunch $(DESTDIR)$(PREFIX)/libexec/rkt/applaunch
	install -D -m 0755 bin/rkt-cni $(DESTDIR)$(PREFIX)/libexec/rkt/rkt-cni
	mkdir -p $(DESTDIR)$(PREFIX)/libexec/rkt/cni
	cp -P bin/cni/* $(DESTDIR)$(PREFIX)/libexec/rkt/cni/
	for page in Documentation/man/*.1; do install -D -m 0644 $$page $(DESTDIR)$(PREFIX)/share/man/man1/$${page##*/}; done
	for unit in rkt-gc.service rkt-gc.timer; do \
		install -D -m 0644 dist/systemd/$$unit $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit && \
		sed -i 's,@PREFIX@,$(PREFIX),' $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit || exit 1; done
	install -D -m 0644 dist/completions/rkt.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/rkt
	install -D -m 0644 dist/completions/_rkt $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rkt
	install -D -m 0644 dist/completions/rkt.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rkt.fish

# Installs the Debian packages that building and testing need, if they lack.
.PHONY: host
host:
	@dist/host-setup

.PHONY: demo
demo: host all
	@tests/demo

# All checks and all tests. Root is needed: pods are run for real.
.PHONY: check
check: host all lint
	tests/check

.PHONY: test
test: all
	go test -tags '$(ALLTAGS)' ./...

.PHONY: lint
lint:
	@test -z "$$(gofmt -l cmd pkg stage0 stage1 tests)" || { echo "gofmt -w these:"; gofmt -l cmd pkg stage0 stage1 tests; exit 1; }
	go vet -tags '$(ALLTAGS)' ./...
	shellcheck dist/cni/build dist/host-setup tests/check tests/demo tests/vm/vm-run .ci/run
	tests/lint

# Writes the command pages, the man pages and the completions anew.
.PHONY: docs
docs:
	go test ./cmd/rkt -run TestDocs -update

.PHONY: fuzz
fuzz:
	tests/fuzz $(FUZZTIME)

# Measures rkt beside the peers that the host has: BENCH chooses cases by a
# regular expression, ROUNDS says how often, WRITE=1 renews the figures in
# Documentation/performance.md.
BENCH  ?=
ROUNDS ?= 10
WRITE  ?=

.PHONY: bench
bench: host all
	@dist/host-setup bench
	go run ./tests/bench -only '$(BENCH)' -rounds $(ROUNDS) $(if $(WRITE),-write)

.PHONY: clean
clean:
	rm -rf bin
