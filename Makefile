# Makefile - the few commands a person types. meson and ninja do the work; this file gets the Debian
# packages they need and knows their arguments.
#
#   make demo [PROMPT="..."]   install what is missing, build, generate demo.png
#   make demo-parallel         the same images on 1 to 7 ranks, in demo-parallel.png
#   make demo-video [PROMPT="..."]     a video of moving shapes, in demo.mp4 and demo.gif
#   make demo-server           serve the demo model over HTTP (doc/server.md)
#   make check                 install what is missing, build, run the quick tests: 12 minutes
#   make check-full            run every test: an hour
#   make check-turn            the slow tests in turn, as many as MINUTES=25 allow
#   make soak                  1,000 short runs of 8 ranks beside load (tests/soak/soak.py)
#   make chaos                500 runs with faults at random moments (tests/chaos/chaos.py)
#   make soak-server           10,000 requests of odd clients (tests/serve/soak.py)
#   make cuda-kernels          the CUDA kernels for all architectures, and their table of registers
#   make cuda-mistakes         whether tests on the simulated GPU find mistakes
#   make cuda-seeds            its tests with twenty orders of work
#   make sanitize-cuda         its tests, and the kernels, under AddressSanitizer and UBSan
#   make clang-ubsan           programs and goldens of clang's sanitizer of undefined behaviour
#   make check-trixie          build and test in a chroot of Debian 13; check-SUITE: of another
#   make check-arm64           compile for ARM of 64 bits, run some tests there by qemu
#   make dist                  an archive of the sources that builds without git, in dist/
#   make deb, wheel            Debian packages, or a Python wheel, of that archive, in dist/
#   make container             an image of packaging/container, without a daemon
#   make check-release         build, install and use the packages in a clean Debian
#   make install, uninstall    under /usr/local, or PREFIX=

PACKAGES = meson ninja-build pkg-config gcc g++ libc6-dev python3 libdnnl-dev libpng-dev \
           libjpeg-dev libwebp-dev libcjson-dev libsentencepiece-dev libprotobuf-dev \
           libutf8proc-dev libpcre2-dev libcmocka-dev libavformat-dev libavcodec-dev \
           libswscale-dev libavutil-dev libmicrohttpd-dev libgnutls28-dev libcurl4-openssl-dev \
           libopenmpi-dev openmpi-bin iproute2 mount universal-ctags
TEST_PACKAGES = chromium openssl procps python3-av python3-cffi python3-numpy python3-pil \
                python3-pytest python3-tqdm python3-yaml util-linux-extra
CLANG_PACKAGES = clang libclang-rt-dev libomp-dev

BUILD = build
PROMPT = a large red circle on a blue background
DEMO = demo.png
MODEL = models/demo-pixart
VIDEO_PROMPT = a red circle moving right on a white background
VIDEO_DEMO = demo
VIDEO_MODEL = models/demo-video
BENCH_ARGS = --config $(MODEL)
FUZZ_SECONDS = 600
SOAK_REQUESTS = 10000
RUNS = 500
SEED = 0
MINUTES = 25
DAY =
TSAN_TESTS = ops_avx512bf16 ops_avx2 ops_attn ops_attn_range golden golden_lora unit_saver
SANITIZE_CUDA_TESTS = sim_rules sim_nccl ops_cuda ops_cuda_seed ops_cuda_own ops_attn_cuda \
                      golden_cuda golden_decoder_cuda steps_cuda_seed parity_cuda_2 \
                      parity_cuda_shared_2 parity_cuda_shared_4 cli_cuda_memory
UBSAN_CASES = micro flux-schnell sd3-no-t5 cog5b-one hunyuan12-one zimage-lora wan-one \
              chroma-one qwen-five qwen-edit-one alpha-share auraflow-one
PREFIX =

# Recipes read the prompt from their environment, so that quotes and dollars in it are just text.
ifneq ($(origin PROMPT),file)
override VIDEO_PROMPT := $(value PROMPT)
endif
override PROMPT := $(value PROMPT)
export PROMPT VIDEO_PROMPT

.PHONY: all build configured program demo demo-parallel demo-video demo-server check check-full \
        check-turn format format-check clang \
        sanitize sanitize-cuda tsan leaks fuzz soak soak-server chaos cuda-kernels cuda-mistakes \
        cuda-seeds bench cpu-table install uninstall clean packages build-packages clang-packages \
        dist deb wheel container check-release

all: build

# Installs those of the packages $(1) that are not there; without root it says what to type.
define need
	@command -v dpkg-query >/dev/null || { \
	    echo "This is no Debian: the build needs what Debian calls $(1)."; exit 0; }; \
	missing=; \
	for p in $(1); do \
	    dpkg-query -W -f='$${db:Status-Abbrev}' $$p 2>/dev/null | grep -q '^.i' || \
	        missing="$$missing $$p"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" != 0 ]; then \
	    echo "Some Debian packages are missing. Please run:"; \
	    echo "  sudo apt-get install --no-install-recommends$$missing"; \
	    exit 1; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update && apt-get install -y --no-install-recommends $$missing
endef

packages:
	$(call need,$(PACKAGES) $(TEST_PACKAGES))

build-packages:
	$(call need,$(PACKAGES))

clang-packages: packages
	$(call need,$(CLANG_PACKAGES))

build: configured
	@ninja -C $(BUILD)

configured: build-packages
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) --buildtype=release

# The program alone, without measuring programs and tests.
program: configured
	@ninja -C $(BUILD) app/xdit

demo: program
	@$(BUILD)/app/xdit generate --model $(MODEL) --prompt "$$PROMPT" --output "$(DEMO)"
	@echo "The image of \"$$PROMPT\" is in $(abspath $(DEMO))"

# The same images by thirteen plans on 1 to 7 ranks, and a table of their cost.
demo-parallel: program
	$(call need,python3-pil fonts-dejavu-core)
	@/usr/bin/python3 bench/demo_parallel.py $(BUILD)/app/xdit $(MODEL) demo-parallel.png
	@echo "The images, a column for each plan, are in $(abspath demo-parallel.png)"

# The program writes GIF by itself, and MP4 with FFmpeg's libraries, where they are.
demo-video: program
	@[ -e $(VIDEO_MODEL)/model_index.json ] || { \
	    echo "There is no $(VIDEO_MODEL): tools/train_demo_video.py trains it"; exit 1; }
	@$(BUILD)/app/xdit generate --model $(VIDEO_MODEL) --prompt "$$VIDEO_PROMPT" \
	    --output "$(VIDEO_DEMO).gif"
	@if said=$$($(BUILD)/app/xdit generate --model $(VIDEO_MODEL) --prompt "$$VIDEO_PROMPT" \
	    --quiet --output "$(VIDEO_DEMO).mp4" 2>&1); then \
	    echo "The video of \"$$VIDEO_PROMPT\" is in $(abspath $(VIDEO_DEMO).mp4) and .gif"; \
	else case "$$said" in \
	    *FFmpeg*) echo "The video of \"$$VIDEO_PROMPT\" is in $(abspath $(VIDEO_DEMO).gif)"; \
	        echo "There is no $(VIDEO_DEMO).mp4, which takes FFmpeg's libraries:" "$$said";; \
	    *) echo "$$said" >&2; exit 1;; \
	    esac; \
	fi

# The server with the demo model, until Ctrl-C; it prints its address, where its page is, too.
demo-server: program
	@ninja -C $(BUILD) app/xdit-server >/dev/null
	@echo "Open this address in a browser, or send requests to it (doc/server.md); Ctrl-C ends it:"
	@exec $(BUILD)/app/xdit serve --model $(MODEL)

check: packages build
	@tests/run.sh $(BUILD) --no-suite slow

check-full: packages build
	@tests/run.sh $(BUILD)

check-turn: packages build
	@tests/turn.py $(BUILD) $(MINUTES) $(DAY)

# Formats the C and CUDA sources; format-check only lists the ones whose layout differs.
format:
	@tools/format.sh

format-check:
	$(call need,python3-venv)
	@tools/format.sh --check || [ $$? = 77 ]    # 77: not installed, which is printed

# The programs through the other compiler, with its warnings as errors.
clang: clang-packages
	@[ -f build-clang/build.ninja ] || CC=clang CXX=clang++ meson setup build-clang -Dtests=false
	@ninja -C build-clang

# What clang knows of undefined behaviour and gcc does not, as offsets of NULL: the demo, a golden
# of each kind of model. AMX is left out: its kernels take minutes to compile.
clang-ubsan: clang-packages
	@[ -f build-ubsan/build.ninja ] || CC=clang CXX=clang++ meson setup build-ubsan \
	    --buildtype=debugoptimized -Db_sanitize=undefined -Db_lundef=false -Damx=false \
	    -Dcuda=disabled
	@export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1; \
	ninja -C build-ubsan app/xdit tests/golden/test_golden tests/golden/full.stamp && \
	build-ubsan/app/xdit generate --model $(MODEL) --prompt "$$PROMPT" --quiet \
	    --output build-ubsan/demo.png && \
	build-ubsan/tests/golden/test_golden tests/golden build-ubsan/tests/golden/full $(UBSAN_CASES)

# In chroots that CHROOTS=DIR keeps (packaging/chroot.sh): half an hour the first time. 77: skipped,
# the reason is printed.
check-trixie check-noble: check-%:
	@packaging/suite_check.sh $*; rc=$$?; [ $$rc = 77 ] || exit $$rc

check-arm64: program
	@packaging/arm64_check.sh $(BUILD)/app/xdit; rc=$$?; [ $$rc = 77 ] || exit $$rc

# The tests again with every memory error and undefined behaviour made fatal. Leaks are left to
# `make leaks`: Open MPI ends a rank without freeing what it keeps.
sanitize sanitize-cuda: packages
	@# gcc warns of what cannot be when its sanitizers are on, so warnings are no errors here
	@[ -f build-asan/build.ninja ] || meson setup build-asan --buildtype=debugoptimized \
	    -Db_sanitize=address,undefined -Db_lundef=false -Dhouse_werror=false
	@ninja -C build-asan
	@ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    tests/run.sh build-asan -t 8 \
	    $(if $(filter sanitize-cuda,$@),$(SANITIZE_CUDA_TESTS))

# Kernels, and whole requests by the best of them, with every data race made fatal. AMX is left out:
# its kernels take minutes to compile with sanitizers.
tsan: packages
	@[ -f build-tsan/build.ninja ] || meson setup build-tsan --buildtype=debugoptimized \
	    -Db_sanitize=thread -Db_lundef=false -Dhouse_werror=false -Damx=false
	@TSAN_OPTIONS=halt_on_error=1:exitcode=66:suppressions=$(CURDIR)/tests/tsan.supp \
	    tests/run.sh build-tsan -t 4 --num-processes 1 \
	    $(TSAN_TESTS)

# What one rank, three ranks and the tests of sources leave allocated at their end. LeakSanitizer of
# gcc 12 may crash where it follows the variables of threads (intercept_tls_get_addr).
leaks: packages
	@[ -f build-leaks/build.ninja ] || meson setup build-leaks --buildtype=debugoptimized \
	    -Db_sanitize=address -Db_lundef=false -Dhouse_werror=false -Damx=false
	@tests/run.sh build-leaks -t 4 cli_leaks
	@ASAN_OPTIONS=detect_leaks=1:intercept_tls_get_addr=0 tests/run.sh build-leaks -t 4 \
	    --suite unit

soak: program
	@python3 tests/soak/soak.py $(BUILD)/app/xdit .

# SEED draws other runs; CHAOS_FAULT=cut_link, in the environment, tries one fault alone.
chaos: program
	@ninja -C $(BUILD) tests/golden/full.stamp
	@CHAOS_RUNS=$(RUNS) CHAOS_SEED=$(SEED) python3 tests/chaos/chaos.py $(BUILD)/app/xdit . \
	    $(BUILD)/tests/golden/full

# Of a server with sanitizers, which note every thread that there was, then of this build.
soak-server: configured
	@[ -f build-asan/build.ninja ] || meson setup build-asan --buildtype=debugoptimized \
	    -Db_sanitize=address,undefined -Db_lundef=false -Dhouse_werror=false
	@for b in build-asan $(BUILD); do \
	    ninja -C $$b app/xdit app/xdit-server tests/golden/fill && \
	    SOAK_REQUESTS=$(SOAK_REQUESTS) SOAK_CLIENTS=12 \
	        SOAK_RSS=$$([ $$b = build-asan ] && echo 4 || echo 2) \
	        python3 tests/serve/soak.py $$b/app/xdit . $$b/tests/golden/fill || exit 1; \
	done

fuzz: clang-packages
	@[ -f build-fuzz/build.ninja ] || CC=clang CXX=clang++ meson setup build-fuzz \
	    --buildtype=debugoptimized -Dfuzz=true -Damx=false -Dcuda=disabled \
	    -Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-fuzz fuzz
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh build-fuzz

# Mistakes, made in a copy of the tree one at a time; each has to make a test fail. Ten minutes.
cuda-mistakes: packages
	@mkdir -p $(BUILD)/mistakes && python3 tests/sim/mistakes.py $(BUILD)/mistakes

# Ops, attention and a few goldens; the first seed that fails ends it. Half an hour.
cuda-seeds: configured
	@ninja -C $(BUILD) tests/ops/ops_cuda tests/ops/ops_attn_cuda tests/golden/test_golden_cuda \
	    tests/golden/full.stamp tests/sim/libcuda.so.1 tests/sim/libcublasLt.so.13 \
	    tests/sim/xdit_kernels.so
	@tests/sim/seeds.sh $(BUILD) 20

# Needs nvcc; the table of doc/internals/cuda.md needs nvdisasm, too.
cuda-kernels: configured
	@ninja -C $(BUILD) cuda_kernels

bench: program
	@$(BUILD)/app/xdit bench $(BENCH_ARGS)

# xdit and the other programs that run Diffusion Transformers on a CPU, in turn: hours, and several
# GB of Python packages. An interrupted run continues where it was. ROWS="flux-512 t5-120" measures
# these rows alone.
cpu-table: configured
	$(call need,python3-venv)
	@ninja -C $(BUILD) bench/step
	@python3 bench/cpu_table.py $(ROWS) --pair $(BUILD)/bench/step --env $(BUILD)/cpu_table \
	    --resume $(BUILD)/cpu_table.json --markdown

# Of HEAD: what is not committed is not in it, and meson refuses.
VERSION = $(shell tools/version.sh)
ARCHIVE = dist/xdit-$(VERSION).tar.gz
dist: configured
	@meson dist -C $(BUILD) --no-tests --formats gztar
	@mkdir -p dist
	@cp $(BUILD)/meson-dist/xdit-$(VERSION).tar.gz $(ARCHIVE)
	@echo "The sources are in $(ARCHIVE)"

# In a folder of its own: dpkg-buildpackage writes beside the sources.
deb: dist
	$(call need,dpkg-dev debhelper)
	@rm -rf dist/deb && mkdir -p dist/deb && tar -x -z -f $(ARCHIVE) -C dist/deb
	@cd dist/deb/xdit-$(VERSION) && dpkg-buildpackage -b -us -uc
	@mv dist/deb/*.deb dist/ && rm -rf dist/deb
	@ls dist/*.deb

wheel: dist
	@python3 -m pip wheel --no-deps --wheel-dir dist $(ARCHIVE)
	@ls dist/*.whl

container:
	packaging/container/build.sh

check-release: dist
	ARCHIVE=$(abspath $(ARCHIVE)) packaging/chroot_check.sh

# DESTDIR is heeded; PREFIX changes where meson installs (default /usr/local).
install: build
	@[ -z "$(PREFIX)" ] || meson configure $(BUILD) -Dprefix="$(PREFIX)"
	@meson install -C $(BUILD)
	@cp $(BUILD)/meson-logs/install-log.txt $(BUILD)/installed.txt
	@# meson has run this too, and keeps what it says to itself
	@[ -n "$(DESTDIR)" ] || \
	    tools/installed.sh "$$(PKG_CONFIG_PATH=$(BUILD)/meson-private \
	        pkg-config --variable=libdir xdit)"

# What the last `make install` has installed.
uninstall:
	@tools/uninstall.sh $(BUILD)/installed.txt

clean:
	rm -rf dist $(BUILD) build-clang build-asan build-tsan build-leaks build-fuzz build-gpu \
	    build-ubsan demo.png demo-parallel.png demo.gif demo.mp4
