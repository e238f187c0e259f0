# `make` lists the targets. What each one needs and costs: docs/development.md.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Tools run at these versions everywhere; `go run` fetches and caches them.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BUF         := github.com/bufbuild/buf/cmd/buf@v1.57.2

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)

# Everything but the race detector compiles in one way, so that the binaries, the
# linters and the tests that build a server share what the build cache holds.
PLAIN := CGO_ENABLED=0 GOFLAGS='$(strip $(shell go env GOFLAGS) -trimpath -buildvcs=false)'
RACE  := CGO_ENABLED=1

# Folders with Go code, in the order of the layers: what the rest stands on is
# tested first. cmd/arch checks the sources and needs no race detector.
LAYERS    := $(wildcard edgelist kv graph cache server cmd)
GO_FILES   = $$(find $(LAYERS) proto docs -name node_modules -prune -o -name '*.go' -print)
TEST_PKGS  = $$(go list $(LAYERS:%=./%/...) | grep -v /cmd/arch$$)

# What may be set from outside.
DATA_DIR    ?= ./liana-data
RUN_FLAGS   ?=
TEST_FLAGS  ?=
FUZZTIME    ?= 60s
BENCH_FLAGS ?=
PKG         ?= ./edgelist
BENCH       ?= .

##@ Everyday

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/lianad, bin/liana and bin/lianabench
	$(PLAIN) go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/lianad ./cmd/liana ./cmd/lianabench

.PHONY: run
run: build ## Build and start a server of one node (DATA_DIR, RUN_FLAGS)
	@echo
	@echo 'Liana keeps its data in $(DATA_DIR); Ctrl-C stops it. When it says "liana ready", try in a second terminal:'
	@echo '  bin/liana edge add user:42 like note:7'
	@echo '  bin/liana demo'
	@echo 'The README goes on from there.'
	@echo
	@exec bin/lianad start --data-dir $(DATA_DIR) $(RUN_FLAGS)

# node N: the addresses of node N of `make cluster`.
node = --data-dir $(DATA_DIR)/node$(1) --grpc-addr 127.0.0.1:74$(1)0 --http-addr 127.0.0.1:74$(1)1 --resp-addr 127.0.0.1:74$(1)2 --peer-addr 127.0.0.1:74$(1)3

.PHONY: cluster
cluster: build ## Build and start three nodes on this machine (DATA_DIR)
	@mkdir -p $(DATA_DIR)
	@echo
	@echo 'Three nodes on the ports 7410, 7420 and 7430, their logs in $(DATA_DIR)/node*.log; Ctrl-C stops them.'
	@echo 'Within half a minute each shard has three replicas. Try in a second terminal:'
	@echo '  bin/liana --addr 127.0.0.1:7410 cluster status'
	@echo '  bin/liana --addr 127.0.0.1:7420 edge add user:42 like note:7'
	@echo '  bin/liana --addr 127.0.0.1:7430 edge count note:7 like --in'
	@echo
	@trap 'trap - INT TERM EXIT; kill $$(jobs -p) 2>/dev/null; wait' INT TERM EXIT; \
	bin/lianad start $(call node,1) --replication 3 2>>$(DATA_DIR)/node1.log & \
	bin/lianad start $(call node,2) --join 127.0.0.1:7413 2>>$(DATA_DIR)/node2.log & \
	bin/lianad start $(call node,3) --join 127.0.0.1:7413 2>>$(DATA_DIR)/node3.log & \
	wait

.PHONY: clean
clean: ## Remove what was built and measured (never a data directory)
	rm -rf bin bench-out

##@ Tests

.PHONY: test
test: ## Run every test with the race detector (TEST_FLAGS)
	@.ci/deps
	$(PLAIN) go test $(TEST_FLAGS) ./cmd/arch ./graph
	$(RACE) go test -race -vet=off -p 2 -timeout 20m $(TEST_FLAGS) $(TEST_PKGS)

.PHONY: test-long
test-long: ## Run the long tests, then each fuzz target for FUZZTIME
	@.ci/deps
	LIANA_LONG=1 $(RACE) go test -race -vet=off -p 1 -count 1 -timeout 3h $(TEST_FLAGS) $(TEST_PKGS)
	.ci/fuzz $(FUZZTIME)

.PHONY: tour
tour: build ## Run the commands of README, api.md and clients.md
	@.ci/deps
	LIANA_TOUR=1 $(PLAIN) go test -count 1 -run TestTours $(TEST_FLAGS) ./cmd/arch

##@ Speed

.PHONY: bench
bench: build ## Measure Liana beside Redis and PostgreSQL (BENCH_FLAGS=--quick)
	@.ci/deps
	@mkdir -p bench-out
	bin/lianabench suite --html bench-out/report.html $(BENCH_FLAGS)

.PHONY: bench-go
bench-go: ## Go benchmarks of one package with profiles (PKG, BENCH)
	@mkdir -p bench-out
	go test -run '^$$' -bench '$(BENCH)' -benchmem -cpuprofile bench-out/cpu.prof -memprofile bench-out/mem.prof -o bench-out/bench.test $(TEST_FLAGS) $(PKG)
	@echo 'Look at them with: go tool pprof bench-out/cpu.prof'

##@ Code

.PHONY: lint
lint: fmt-check vet staticcheck ## Check format, go vet, staticcheck, layers and style
	$(PLAIN) go test ./cmd/arch

.PHONY: fmt-check
fmt-check: ## Name the Go files that gofmt would change
	@unformatted=$$(gofmt -l $(GO_FILES)); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet: ## Run go vet
	$(PLAIN) go vet ./...

.PHONY: staticcheck
staticcheck: ## Run staticcheck at its pinned version
	$(PLAIN) go run $(STATICCHECK) ./...

.PHONY: mod-check
mod-check: ## Check that go.mod and go.sum are tidy, writing nothing
	go mod tidy -diff
	go mod verify

.PHONY: proto
proto: ## Regenerate the Go code of proto/ with pinned tools
	cd proto && $(PLAIN) go run $(BUF) generate && $(PLAIN) go run $(BUF) generate --template buf.gen.web.yaml

.PHONY: proto-check
proto-check: ## Check that the generated code is what the .proto files say
	@$(PLAIN) .ci/proto-check $(BUF)
