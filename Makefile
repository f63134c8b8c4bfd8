# Ballast. `make up` and `make test` do all their own set-up; `make help` lists the rest.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where `up` keeps the cluster; arguments go through, e.g. make up ARGS="--memory --listen 127.0.0.1:0".
ARGS    ?=
IMG     ?= ballast:$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
CARGO   ?= cargo
# The binary needs no library: it runs in any image, beside any Debian. An explicit target keeps that from
# the build's own programs.
TRIPLE  := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
RELEASE  = RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" $(CARGO) $(1) --release --locked --target $(TRIPLE)
STATIC  := $(call RELEASE,build)
BALLAST := target/$(TRIPLE)/release/ballast
# What is built to be run once needs no pieces to be built again from; and what one target built, the others have.
TEST    := CARGO_INCREMENTAL=0 $(CARGO) test --workspace --locked
ARCHIVE ?= target/ballast-image.tar
KUBECTL  = $(shell hack/kubectl)

export PATH := $(CURDIR)/bin:$(PATH)
export BALLAST_GIT_DESCRIBE ?= $(shell git describe --always --dirty 2>/dev/null)

.PHONY: help
help: ## Show this.
	@printf 'Ballast: stateful services on Kubernetes, operated in Rust.\n\n'
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z-]*:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two commands

.PHONY: up
up: setup build ## Start a Kubernetes in one process with every operator in it (Ctrl-C stops it).
	@mkdir -p bin && ln -sf $(abspath $(BALLAST)) bin/ballast
	@exec $(BALLAST) up $(ARGS)

# What the tests start waits for clocks and for each other: twice as many as there are processors keep them busy.
.PHONY: test
test: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
test: setup-test ## Run every test that needs no other cluster.
	$(TEST)

##@ Development

.PHONY: build
build: ## Build the release binary.
	@$(STATIC) -p ballast

.PHONY: image
image: build ## Write an image of the operators as an OCI archive (IMG=…, ARCHIVE=…); no Docker needed.
	@$(BALLAST) image pack --name $(IMG) $(ARCHIVE)

.PHONY: lint
lint: setup ## Formatting, clippy with warnings denied, licences and sources of dependencies.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	hack/cargo-deny check bans licenses sources

.PHONY: test-real
test-real: setup-test ## The conformance suite on a real Kubernetes: KUBECONFIG's, or one built with Go.
	hack/test-real

.PHONY: prove
prove: setup-test ## Crash the operators after every single write, in every life, also with real databases (forty minutes on 2 cores).
	BALLAST_PROVE=all $(call RELEASE,test) -p ballast-proving -- --nocapture
	BALLAST_PROVE=all $(TEST) --test whole -- --nocapture mysql_crashes::

.PHONY: soak
soak: setup-test ## Kill the API server and the node at random, under writers and during updates, a hundred times each; put a release's agent into pods (minutes).
	BALLAST_SOAK=100 $(TEST) --test whole -- --nocapture --test-threads=1 durable:: soak::
	$(STATIC) -p ballast
	BALLAST_PROGRAM=$(CURDIR)/$(BALLAST) $(TEST) --test whole -- --nocapture agent_servers::

.PHONY: bench
bench: setup ## Print the benchmark tables (beside a real API server with REAL=1).
	@$(STATIC) -p ballast -p ballast-bench
	hack/bench $(dir $(BALLAST))

##@ A cluster of your own (KUBECONFIG)

# What holds data waits for its operator when it goes, and goes only when it was meant.
NO_DATABASES = hack/no-databases $(KUBECTL)

.PHONY: run
run: build ## Run the operators on this machine against KUBECONFIG's cluster.
	@exec $(BALLAST) run $(ARGS)

.PHONY: install
install: build ## Install the custom resource definitions.
	$(BALLAST) crds | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: build ## Remove the definitions, and with them every resource of theirs but databases, which must be gone.
	@$(NO_DATABASES)
	$(BALLAST) crds | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: build ## Deploy the operators into the cluster, which must have the image IMG=… (that of `make up` does).
	$(BALLAST) manifests --image $(IMG) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: build ## Remove the operators, their permissions and the definitions.
	@$(NO_DATABASES)
	$(BALLAST) manifests --image $(IMG) | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: setup
setup: # What the other targets need on a bare machine: a C linker and kubectl.
	@hack/setup

.PHONY: setup-test
setup-test: # And what the tests run beside Ballast.
	@hack/setup test
