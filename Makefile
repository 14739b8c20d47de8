# The front door.  `make look` builds attn and shows where a translator looked; `make test`
# builds and runs the tests.  Both install the packages that are missing on Debian and
# Ubuntu, where root or sudo allow, and name them otherwise.
#
#     make build                      the library and the command, no test
#     make look SENTENCE="Where is the station?"
#     make install                    under /usr/local, or PREFIX=FOLDER, or DESTDIR=FOLDER
#     make test BUILD=elsewhere

BUILD ?= build
PREFIX ?= /usr/local
SENTENCE ?= The cat, which was sitting on the mat, was hungry
# As it was given: neither make nor the shell reads anything in it.
override SENTENCE := $(value SENTENCE)
export SENTENCE

.PHONY: look test build install configure dependencies clean

look: configure
	@ninja -C $(BUILD) src/cli/attn
	@$(BUILD)/src/cli/attn look -- "$$SENTENCE"

test: configure
	meson test -C $(BUILD) --print-errorlogs
	@! grep -h '^skipped' $(BUILD)/meson-logs/testlog.txt || \
	    echo "ATTN_SHARED would name a folder with published conformance cases; what else" \
	        "would let more run: CONTRIBUTING.md, Tests"

build: configure
	@ninja -C $(BUILD) installed

# What meson found is in $(BUILD)/meson-logs; here only why it stopped.
configure: dependencies
	@test -f $(BUILD)/build.ninja || said=$$(meson setup $(BUILD) 2>&1) || \
	    { echo "$$said" >&2; exit 1; }

install: configure
	@meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) -Dlibdir=lib
	@ninja -C $(BUILD) installed
	@meson install -C $(BUILD) --no-rebuild
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

dependencies:
	@sh scripts/dependencies.sh

clean:
	rm -rf $(BUILD)
