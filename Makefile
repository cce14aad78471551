# make demo   set-up, release build, and the main job on something real
# make test   set-up, and all tests
# make bench  effigy beside bare, bwrap, an overlay alone, and strace; BENCH="--quick", "--help", … are passed on

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
EFFIGY := $(TARGET)/release/effigy

SHELL := /bin/sh
.SHELLFLAGS := -euc
.ONESHELL:
.PHONY: all setup build demo test bench lint install uninstall clean

all: build

# libseccomp's header and library are the only things needed that a Rust installation does not bring.
setup:
	@if pkg-config --exists libseccomp 2>/dev/null; then exit 0; fi
	if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
	echo "installing libseccomp's development package"
	if command -v apt-get >/dev/null; then
		$$sudo apt-get update -q
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends pkg-config libseccomp-dev
	elif command -v dnf >/dev/null; then
		$$sudo dnf install -q -y pkgconf-pkg-config libseccomp-devel
	elif command -v pacman >/dev/null; then
		$$sudo pacman -S --needed --noconfirm pkgconf libseccomp
	elif command -v apk >/dev/null; then
		$$sudo apk add -q pkgconf libseccomp-dev libseccomp-static
	else
		echo "no apt-get, dnf, pacman or apk here: install pkg-config and libseccomp with its headers, then make again" >&2
		exit 1
	fi

build: setup
	@$(CARGO) build --release --locked

# Clones this repository in a semisolate, looks at the result, and commits it; everything in a directory of its own.
demo: build
	@effigy=$$(readlink -f "$(EFFIGY)"); here=$$PWD
	for base in "$${TMPDIR:-/tmp}" /var/tmp /dev/shm; do
		[ "$$(stat -f -c %T "$$base")" = overlayfs ] || break
	done
	dir=$$(mktemp -d "$$base/effigy-demo.XXXXXX")
	export EFFIGY_STORE="$$dir/store" PAGER=cat GIT_OPTIONAL_LOCKS=0
	trap '"$$effigy" discard --all --yes >/dev/null 2>&1 || :; rm -rf "$$dir"' EXIT
	mkdir "$$dir/work"; cd "$$dir/work"
	say() { printf '\n$$ %s\n' "$$*"; }
	if [ -e "$$here/.git" ]; then
		set -- git clone -q "$$here" project
	else
		set -- cp -R "$$here/docs" project
	fi
	say "effigy run -n -s demo -- $$*"
	"$$effigy" run -n -s demo -- "$$@"
	say "ls    # nothing has changed"
	ls
	say "effigy summary demo | head"
	"$$effigy" summary demo >"$$dir/summary"
	head "$$dir/summary"
	printf '(%s paths)\n' "$$(wc -l <"$$dir/summary")"
	say "effigy commit demo --yes"
	"$$effigy" commit demo --yes
	say "ls project    # now it is there"
	ls project
	[ ! -e project/.git ] || git -C project status --short --branch
	say "effigy undo demo --yes"
	"$$effigy" undo demo --yes
	say "ls    # and gone again"
	ls

test: setup
	@$(CARGO) test --workspace --locked

bench: build
	@python3 -B benches/compare --effigy "$(EFFIGY)" $(BENCH)

lint:
	@$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Installs what `make build` has built, so that `sudo make install` needs no Rust.
install:
	@[ -x "$(EFFIGY)" ] || { echo "there is no $(EFFIGY): run make build first" >&2; exit 1; }
	install -D -m 755 "$(EFFIGY)" "$(DESTDIR)$(PREFIX)/bin/effigy"
	install -d -m 755 "$(DESTDIR)$(PREFIX)/share/man/man1"
	"$(EFFIGY)" man "$(DESTDIR)$(PREFIX)/share/man/man1"
	share="$(DESTDIR)$(PREFIX)/share"
	install -d "$$share/bash-completion/completions" "$$share/zsh/site-functions" "$$share/fish/vendor_completions.d"
	install -D -m 644 packaging/apparmor/effigy "$$share/effigy/apparmor"
	"$(EFFIGY)" completions bash >"$$share/bash-completion/completions/effigy"
	"$(EFFIGY)" completions zsh >"$$share/zsh/site-functions/_effigy"
	"$(EFFIGY)" completions fish >"$$share/fish/vendor_completions.d/effigy.fish"
	echo "to call it as try (binpash/try's command line): ln -s effigy $(DESTDIR)$(PREFIX)/bin/try"

uninstall:
	@rm -f "$(DESTDIR)$(PREFIX)/bin/effigy" "$(DESTDIR)$(PREFIX)"/share/man/man1/effigy.1 "$(DESTDIR)$(PREFIX)"/share/man/man1/effigy-*.1
	share="$(DESTDIR)$(PREFIX)/share"
	rm -rf "$$share/effigy"
	rm -f "$$share/bash-completion/completions/effigy" "$$share/zsh/site-functions/_effigy" "$$share/fish/vendor_completions.d/effigy.fish"

clean:
	@$(CARGO) clean
