# Penstock. Two commands are all one needs at first:
#
#	go run ./cmd/penstock demo
#	make test
#
# Everything here works on a new Debian 12 with Go and make; what the tests
# start besides (redis-server, a browser, a C compiler for the race detector) is
# installed with apt when it is missing.

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO       ?= go
# Test binaries at once. Two, as most suites keep a redis-server of their own
# busy and some measure: more would measure each other.
P        ?= 2
# Of one package's tests. The slowest takes a quarter of it on two cores.
TIMEOUT  ?= 8m
# Hours of virtual time in one goroutine, where the race detector costs tenfold
# and finds nothing: the long tests of this package run without it.
SLOW     := /internal/simulate$$
LONG     := ^(TestAcceptance|TestGateModel|TestAccountOfGate)$$
FUZZTIME ?= 30s
PKGS     ?= ./...
ARGS     ?=

FAULT_FILES := '^//go:build faults$$'

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## bin/penstock: one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/penstock ./cmd/penstock

.PHONY: demo
demo: ## two fragile providers, thousands of jobs, no Redis needed
	$(GO) run ./cmd/penstock demo $(ARGS)

.PHONY: needs
needs:
	@.ci/install redis-server=redis-server chromium=chromium gcc=gcc,libc6-dev curl=curl

# The linters, and why these: gofmt ends debates, vet knows the mistakes that
# compile, staticcheck finds the most of what is left with hardly a false alarm
# (its version is pinned in go.mod), and tidy keeps go.mod the truth. No other:
# each further one costs more attention than it saves.
.PHONY: lint
lint: ## gofmt, go vet, staticcheck, go mod tidy
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet -tags faults $(PKGS)
	$(GO) tool staticcheck -tags faults $(PKGS)

.PHONY: test
test: needs lint ## linters and every test, on a real Redis and on the embedded store
	@pkgs=$$($(GO) list $(PKGS)); \
	slow=$$(grep -E '$(SLOW)' <<< "$$pkgs" || true); rest=$$(grep -vE '$(SLOW)' <<< "$$pkgs" || true); \
	set -x; export PENSTOCK_BROWSER=required; \
	if [ -n "$$rest" ]; then $(GO) test -race -timeout $(TIMEOUT) -p $(P) $(ARGS) $$rest; fi; \
	if [ -n "$$slow" ]; then $(GO) test -race -timeout $(TIMEOUT) $(ARGS) -skip '$(LONG)' $$slow && $(GO) test -timeout $(TIMEOUT) $(ARGS) -run '$(LONG)' $$slow; fi

# Tests that kill, stop and restart real processes: files with the build tag
# "faults", functions named TestFault… . Without the race detector, as they
# measure times. A package that has such a file and runs no test is a failure.
.PHONY: test-faults
test-faults: needs ## kills, stops and restarts of real processes
	@files=$$(grep -rlE --include='*_test.go' $(FAULT_FILES) . || true); \
	if [ -z "$$files" ]; then echo "test-faults: there is no test file with the build tag faults"; exit 1; fi; \
	pkgs=$$(for f in $$files; do echo "$${f%/*}"; done | sort -u); \
	out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	$(GO) test -tags faults -run '^TestFault' -count 1 -timeout 5m -p $(P) $(ARGS) $$pkgs 2>&1 | tee "$$out"; \
	if grep -F 'no tests to run' "$$out"; then echo "test-faults: a package with the build tag faults ran no TestFault…"; exit 1; fi

.PHONY: ci
ci: test test-faults ## what CI runs: test, then test-faults

# Every fuzz function in turn, for FUZZTIME each. Not part of ci; the seeds and
# what was once found run in every test.
.PHONY: fuzz
fuzz: ## fuzz every target for FUZZTIME (30s) each
	@found=0; \
	for f in $$(grep -rlE --include='*_test.go' '^func Fuzz' .); do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$f"); do \
			found=1; echo "== $${f%/*} $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$${f%/*}"; \
		done; \
	done; \
	if [ $$found = 0 ]; then echo "fuzz: there is no fuzz function"; exit 1; fi

.PHONY: bench
bench: needs ## the README's figures, measured here against plain asynq
	$(GO) run ./cmd/penstock bench $(ARGS)

.PHONY: bench-go
bench-go: ## Go benchmarks of the rooms
	$(GO) test -run '^$$' -bench . -benchmem -timeout 20m -p 1 $(ARGS) $(PKGS)

# The alert rules' own tests; Prometheus is nothing that make test needs.
.PHONY: rules
rules: ## check and test the Prometheus rules with promtool
	@.ci/install promtool=prometheus
	promtool check config --syntax-only deploy/prometheus/prometheus.yml
	promtool check rules deploy/prometheus/penstock.rules.yml
	promtool test rules deploy/prometheus/penstock.rules.test.yml

.PHONY: image
image: ## the container image (needs a Docker engine)
	docker build -f deploy/Dockerfile -t penstock .

.PHONY: clean
clean: ## what was built here
	rm -rf bin dist
