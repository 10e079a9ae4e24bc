/* A small stand-in for libnvidia-ml.so.1.
 * MOCK_GPUS (default 1), MOCK_GPU_NAME, MOCK_GPU_MEM_MIB.
 * MIG: MOCK_MIG_LAYOUT names a text file, read again when it changes; unset: the GPUs cannot do MIG.
 *   gpu 0: 1g.5gb 1g.5gb 2g.10gb 3g.20gb      MIG mode on, these instances ("gpu 0:" alone: on and empty)
 *   (no line, no file, empty file)            MIG mode off
 * PROFILE@START fixes the first memory slice, a trailing "-" (1g.5gb@0-) is a GPU instance without its compute
 * instance. Set/Create/Destroy calls rewrite the file (temporary file + rename, so give it a folder of its own).
 * MOCK_MIG_GEOMETRY=a100|h200 (default: from the GPU name).
 * A file LAYOUT.busy: instances cannot be made or destroyed (IN_USE), a mode change stays pending.
 * MOCK_PROCESSES names a text file, one process on GPU 0 a line: `compute 4711 710`, `mps 4712 270`, `graphics 1 8` (pid, MiB);
 *   as a real driver does, an MPS client is in the compute list too.
 * MOCK_COMPUTE_MODE (default 0).
 * MOCK_READINGS=1: power, energy, clocks, temperature, utilisation, reasons and GPM, each a fixed number; unset: not supported.
 * MOCK_MIG_RESET=1: SetMigMode only notes "pending 0: on" (Ampere); the nvidia-smi stand-in makes it current on -r. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, IN_USE = 19, NO_ROOM = 23 };
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct gpu { int index, gi; } *dev_t_;       /* gi: -1 a whole GPU, else a MIG device */
typedef struct {            /* nvmlPciInfo_t */
	char busIdLegacy[16];
	u32 domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} pci_t;
typedef struct { u64 total, free, used; } mem_t;
typedef struct { u32 version; u64 total, reserved, free, used; } mem2_t;

static struct gpu gpus[8] = {{0,-1},{1,-1},{2,-1},{3,-1},{4,-1},{5,-1},{6,-1},{7,-1}};
static int count(void) {
	const char *s = getenv("MOCK_GPUS");
	int n = s ? atoi(s) : 1;
	return n < 0 ? 0 : n > 8 ? 8 : n;
}
static const char *name(void) {
	const char *s = getenv("MOCK_GPU_NAME");
	return s ? s : "NVIDIA Mock A100-SXM4-40GB";
}
static int h200(void) {
	const char *s = getenv("MOCK_MIG_GEOMETRY");
	return s && *s ? !strcmp(s, "h200") : strstr(name(), "H200") != 0;
}
static u64 mib(void) {
	const char *s = getenv("MOCK_GPU_MEM_MIB");
	return s ? strtoull(s, 0, 10) : h200() ? 143771 : 40960;
}
static int put(char *to, u32 len, const char *s) {
	if (strlen(s) + 1 > len) return SMALL;
	strcpy(to, s);
	return OK;
}
/* ---- MIG state: the layout file ---- */
struct prof { const char *name; u32 idx, id, slices, count, sm, ce, dec, jpeg, ofa; u64 mb; u32 size; signed char starts[8]; };
/* starts: the order in which a driver was seen to fill the memory slices, -1 ends it */
static const struct prof a100[] = {
	{"1g.5gb", 0, 19, 1, 7, 14, 1, 0, 0, 0, 4864, 1, {6, 4, 5, 0, 1, 2, 3, -1}},
	{"2g.10gb", 1, 14, 2, 3, 28, 2, 1, 0, 0, 9856, 2, {4, 0, 2, -1}},
	{"3g.20gb", 2, 9, 3, 2, 42, 3, 2, 0, 0, 19968, 4, {4, 0, -1}},
	{"4g.20gb", 3, 5, 4, 1, 56, 4, 2, 0, 0, 19968, 4, {0, -1}},
	{"7g.40gb", 4, 0, 7, 1, 98, 7, 5, 1, 1, 40192, 8, {0, -1}},
	{"1g.5gb+me", 7, 20, 1, 1, 14, 1, 1, 1, 1, 4864, 1, {6, 4, 5, 0, 1, 2, 3, -1}},
	{"1g.10gb", 9, 15, 1, 4, 14, 1, 1, 0, 0, 9856, 2, {6, 4, 0, 2, -1}},
	{0}
}, hopper[] = {             /* sizes in MiB are rounded */
	{"1g.18gb", 0, 19, 1, 7, 16, 1, 1, 1, 0, 16384, 1, {6, 4, 5, 0, 1, 2, 3, -1}},
	{"2g.35gb", 1, 14, 2, 3, 32, 2, 2, 2, 0, 33280, 2, {4, 0, 2, -1}},
	{"3g.71gb", 2, 9, 3, 2, 60, 3, 3, 3, 0, 71424, 4, {4, 0, -1}},
	{"4g.71gb", 3, 5, 4, 1, 64, 4, 4, 4, 0, 71424, 4, {0, -1}},
	{"7g.141gb", 4, 0, 7, 1, 132, 8, 7, 7, 1, 143360, 8, {0, -1}},
	{"1g.18gb+me", 7, 20, 1, 1, 16, 1, 1, 1, 1, 16384, 1, {6, 4, 5, 0, 1, 2, 3, -1}},
	{"1g.35gb", 9, 15, 1, 4, 26, 1, 1, 1, 0, 33280, 2, {6, 4, 0, 2, -1}},
	{0}
};
struct inst { const struct prof *p; int start, gi, ci; };            /* ci: it has its compute instance */
struct state { int on, pending, n; struct inst i[8]; };              /* pending: -1 none */
static struct state st[8];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static const struct prof *table(void) { return h200() ? hopper : a100; }
static const struct prof *by_name(const char *s) { for (const struct prof *p = table(); p->name; p++) if (!strcmp(p->name, s)) return p; return 0; }
static const struct prof *by_idx(u32 i) { for (const struct prof *p = table(); p->name; p++) if (p->idx == i) return p; return 0; }
static const struct prof *by_id(u32 i) { for (const struct prof *p = table(); p->name; p++) if (p->id == i) return p; return 0; }
static const char *layout(void) { const char *s = getenv("MOCK_MIG_LAYOUT"); return s && *s ? s : 0; }
static int aside(const char *suffix, char *to) { return snprintf(to, 4096, "%s%s", layout(), suffix) < 4096; }
static int busy(void) { char b[4096]; return aside(".busy", b) && !access(b, F_OK); }
static int gi_of(const struct prof *p, int start) { return p->size == 8 ? 0 : p->size == 4 ? 1 + start / 4 : p->size == 2 ? 3 + start / 2 : 7 + start; }
static u32 mask(const struct prof *p, int start) { return ((1u << p->size) - 1) << start; }
static u32 used(const struct state *s) { u32 m = 0; for (int k = 0; k < s->n; k++) m |= mask(s->i[k].p, s->i[k].start); return m; }
static int fits(const struct state *s, const struct prof *p, int start) {
	u32 n = 0, sl = p->slices;
	for (int k = 0; k < s->n; k++) { n += s->i[k].p == p; sl += s->i[k].p->slices; }
	return n < p->count && sl <= 7 && !(used(s) & mask(p, start));
}
static void add(struct state *s, const struct prof *p, int start, int ci) {
	s->i[s->n++] = (struct inst){p, start, gi_of(p, start), ci};
}
struct want { const struct prof *p; int start, ci; };
static int place(struct state *s, const struct want *w, int n, int k) {
	if (k == n) return 1;
	for (const signed char *c = w[k].p->starts; *c >= 0; c++) {
		if (w[k].start >= 0 && w[k].start != *c) continue;
		if (s->n == 8 || !fits(s, w[k].p, *c)) continue;
		add(s, w[k].p, *c, w[k].ci);
		if (place(s, w, n, k + 1)) return 1;
		s->n--;
	}
	return 0;
}
static void parse(char *text) {
	for (int g = 0; g < 8; g++) st[g] = (struct state){.pending = -1};
	for (char *l, *sv = 0, *t = text; (l = strtok_r(t, "\n", &sv)); t = 0) {
		int g, at = 0, n = 0;
		char on[8], *sv2 = 0;
		struct want w[16];
		if (sscanf(l, " pending %d: %7s", &g, on) == 2 && g >= 0 && g < 8) { st[g].pending = !strcmp(on, "on"); continue; }
		if (sscanf(l, " gpu %d:%n", &g, &at) != 1 || !at || g < 0 || g > 7) continue;
		st[g].on = 1;
		for (char *k, *u = l + at; n < 16 && (k = strtok_r(u, " \t\r", &sv2)); u = 0) {
			if (*k == '#') break;
			char *a = strchr(k, '@'), *e = k + strlen(k) - 1;
			w[n].ci = *e != '-'; if (*e == '-') *e = 0;
			w[n].start = a ? atoi(a + 1) : -1; if (a) *a = 0;
			if ((w[n].p = by_name(k))) n++;
			else fprintf(stderr, "mock NVML: gpu %d has no profile %s\n", g, k);
		}
		for (; !(st[g].n = 0) && !place(&st[g], w, n, 0); n--) fprintf(stderr, "mock NVML: gpu %d: no room for %s\n", g, w[n - 1].p->name);
		for (int a = 0; a < st[g].n; a++) for (int b = a + 1; b < st[g].n; b++)      /* order of the GPU instance numbers */
			if (st[g].i[b].gi < st[g].i[a].gi) { struct inst x = st[g].i[a]; st[g].i[a] = st[g].i[b]; st[g].i[b] = x; }
	}
}
static void load(void) {                                             /* under mu */
	static struct stat last;
	static char text[8192];
	struct stat s = {0};
	if (!layout() || stat(layout(), &s)) memset(&s, 0, sizeof s);
	if (s.st_ino == last.st_ino && s.st_size == last.st_size && s.st_mtim.tv_sec == last.st_mtim.tv_sec && s.st_mtim.tv_nsec == last.st_mtim.tv_nsec && last.st_nlink == s.st_nlink) return;
	last = s;
	int f = s.st_ino ? open(layout(), O_RDONLY | O_CLOEXEC) : -1;
	ssize_t n = f < 0 ? 0 : read(f, text, sizeof text - 1);
	if (f >= 0) close(f);
	text[n > 0 ? n : 0] = 0;
	parse(text);
}
static struct state snap(int g) {
	pthread_mutex_lock(&mu);
	static int first = 1;
	if (first) { parse((char[]){""}); first = 0; }
	load();
	struct state s = st[g];
	pthread_mutex_unlock(&mu);
	return s;
}
static int f_mode(struct state *, void *);
static int change(int g, int (*f)(struct state *, void *), void *x) { /* read, change and write under a lock between processes */
	char b[4096], t[4096];
	if (!layout()) return NOT_SUPPORTED;
	if (busy() && f != f_mode) return IN_USE;
	snap(g);
	pthread_mutex_lock(&mu);
	int lk = aside(".lock", b) ? open(b, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1, r;
	if (lk >= 0) flock(lk, LOCK_EX);
	load();
	r = f(&st[g], x);
	if (r == OK) {
		sprintf(t, ".%d", (int)getpid()); aside(t, b);
		FILE *o = fopen(b, "we");
		if (!o) r = 4;                                                /* NO_PERMISSION */
		else {
			for (int k = 0; k < 8; k++) {
				if (st[k].pending >= 0) fprintf(o, "pending %d: %s\n", k, st[k].pending ? "on" : "off");
				if (!st[k].on) continue;
				fprintf(o, "gpu %d:", k);
				for (int j = 0; j < st[k].n; j++) fprintf(o, " %s@%d%s", st[k].i[j].p->name, st[k].i[j].start, st[k].i[j].ci ? "" : "-");
				fputc('\n', o);
			}
			if (fclose(o) || rename(b, layout())) r = 4;
		}
	}
	load();
	if (lk >= 0) close(lk);
	pthread_mutex_unlock(&mu);
	return r;
}
static int find(int g, int gi, struct inst *x) {
	struct state s = snap(g);
	for (int k = 0; k < s.n; k++) if (s.i[k].gi == gi) { if (x) *x = s.i[k]; return 1; }
	return 0;
}
static dev_t_ handle(int g, int gi) {                                /* one address per GPU and instance number */
	static struct gpu h[8][16];
	h[g][gi] = (struct gpu){g, gi};
	return &h[g][gi];
}
static u64 mem_of(dev_t_ d) { struct inst x; return d->gi < 0 ? mib() : find(d->index, d->gi, &x) ? x.p->mb : 0; }
static void mig_uuid(int g, const struct inst *x, char *to) { sprintf(to, "MIG-%08x-%04x-5000-8000-%012d", g + 1, x->p->id, x->gi); }
static int mig_by_uuid(const char *u, dev_t_ *d) {
	char b[64];
	for (int g = 0; g < count(); g++) {
		struct state s = snap(g);
		for (int k = 0; k < s.n; k++) {
			mig_uuid(g, &s.i[k], b);
			if (s.i[k].ci && !strcmp(b, u)) { *d = handle(g, s.i[k].gi); return OK; }
		}
	}
	return NOT_FOUND;
}
static int mig_index(dev_t_ d) {
	struct state s = snap(d->index);
	int n = 0;
	for (int k = 0; k < s.n; n += s.i[k++].ci) if (s.i[k].gi == d->gi) return n;
	return 0;
}
static void uuid(int i, char *to) {
	sprintf(to, "GPU-00000000-0000-4000-8000-%012d", i + 1);
}

int nvmlInit(void) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlInitWithFlags(u32 f) { (void)f; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int r) { return r == OK ? "Success" : "mock NVML error"; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { return put(s, n, "570.00.01"); }
int nvmlSystemGetNVMLVersion(char *s, u32 n) { return put(s, n, "12.570.00.01"); }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 12080; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12080; return OK; }
int nvmlSystemGetConfComputeState(void *s) { (void)s; return NOT_SUPPORTED; }

int nvmlDeviceGetCount_v2(u32 *n) { *n = count(); return OK; }
int nvmlDeviceGetCount(u32 *n) { return nvmlDeviceGetCount_v2(n); }
int nvmlDeviceGetHandleByIndex_v2(u32 i, dev_t_ *d) {
	if ((int)i >= count()) return INVALID;
	*d = &gpus[i];
	return OK;
}
int nvmlDeviceGetHandleByIndex(u32 i, dev_t_ *d) { return nvmlDeviceGetHandleByIndex_v2(i, d); }
int nvmlDeviceGetHandleByUUID(const char *u, dev_t_ *d) {
	char b[64];
	for (int i = 0; i < count(); i++) {
		uuid(i, b);
		if (!strcmp(b, u)) { *d = &gpus[i]; return OK; }
	}
	return mig_by_uuid(u, d);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *b, dev_t_ *d) {
	u32 dom, bus;
	if (sscanf(b, "%x:%x:", &dom, &bus) != 2 || bus < 1 || (int)bus > count()) return NOT_FOUND;
	*d = &gpus[bus - 1];
	return OK;
}
int nvmlDeviceGetName(dev_t_ d, char *s, u32 n) {
	char b[160];
	struct inst x;
	if (d->gi < 0) return put(s, n, name());
	if (!find(d->index, d->gi, &x)) return NOT_FOUND;
	snprintf(b, sizeof b, "%s MIG %s", name(), x.p->name);
	return put(s, n, b);
}
int nvmlDeviceGetUUID(dev_t_ d, char *s, u32 n) {
	char b[64];
	struct inst x;
	if (d->gi < 0) uuid(d->index, b);
	else if (!find(d->index, d->gi, &x)) return NOT_FOUND;
	else mig_uuid(d->index, &x, b);
	return put(s, n, b);
}
int nvmlDeviceGetSerial(dev_t_ d, char *s, u32 n) { (void)d; return put(s, n, "0"); }
int nvmlDeviceGetVbiosVersion(dev_t_ d, char *s, u32 n) { (void)d; return put(s, n, "00.00.00.00.00"); }
int nvmlDeviceGetIndex(dev_t_ d, u32 *i) { *i = d->gi < 0 ? d->index : mig_index(d); return OK; }
int nvmlDeviceGetMinorNumber(dev_t_ d, u32 *i) { *i = d->index; return OK; }
int nvmlDeviceGetBrand(dev_t_ d, int *b) { (void)d; *b = 14; return OK; }
int nvmlDeviceGetArchitecture(dev_t_ d, u32 *a) { (void)d; *a = h200() ? 9 : 7; return OK; }
int nvmlDeviceGetCudaComputeCapability(dev_t_ d, int *a, int *b) { (void)d; *a = h200() ? 9 : 8; *b = 0; return OK; }
int nvmlDeviceGetMemoryInfo(dev_t_ d, mem_t *m) {
	m->total = mem_of(d) << 20; m->used = 0; m->free = m->total;
	return OK;
}
int nvmlDeviceGetMemoryInfo_v2(dev_t_ d, mem2_t *m) {
	m->total = mem_of(d) << 20; m->reserved = m->used = 0; m->free = m->total;
	return OK;
}
int nvmlDeviceGetPciInfo_v3(dev_t_ d, pci_t *p) {
	memset(p, 0, sizeof *p);
	p->bus = d->index + 1;
	p->pciDeviceId = h200() ? 0x233510DE : 0x20B010DE;
	sprintf(p->busIdLegacy, "0000:%02x:00.0", p->bus);
	sprintf(p->busId, "00000000:%02X:00.0", p->bus);
	return OK;
}
int nvmlDeviceGetPciInfo_v2(dev_t_ d, pci_t *p) { return nvmlDeviceGetPciInfo_v3(d, p); }
int nvmlDeviceGetPciInfo(dev_t_ d, pci_t *p) { return nvmlDeviceGetPciInfo_v3(d, p); }
int nvmlDeviceGetComputeMode(dev_t_ d, u32 *m) { (void)d; const char *s = getenv("MOCK_COMPUTE_MODE"); *m = s ? atoi(s) : 0; return OK; }
int nvmlDeviceSetComputeMode(dev_t_ d, u32 m) { (void)d; (void)m; return NOT_SUPPORTED; }
int nvmlDeviceGetAddressingMode(dev_t_ d, void *m) { (void)d; (void)m; return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfo(dev_t_ d, void *i) { (void)d; (void)i; return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(dev_t_ d, void *i) { (void)d; (void)i; return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkState(dev_t_ d, u32 l, u32 *s) { (void)d; (void)l; (void)s; return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev_t_ d, u32 l, pci_t *p) { (void)d; (void)l; (void)p; return NOT_SUPPORTED; }
int nvmlDeviceGetTopologyCommonAncestor(dev_t_ a, dev_t_ b, u32 *l) { (void)a; (void)b; *l = 40; return OK; }
int nvmlDeviceGetPersistenceMode(dev_t_ d, u32 *m) { (void)d; *m = 1; return OK; }
int nvmlDeviceGetVirtualizationMode(dev_t_ d, u32 *m) { (void)d; *m = 0; return OK; }
int nvmlDeviceGetDisplayMode(dev_t_ d, u32 *m) { (void)d; *m = 0; return OK; }

static int events;
int nvmlEventSetCreate(void **s) { *s = &events; return OK; }
int nvmlEventSetFree(void *s) { (void)s; return OK; }
int nvmlDeviceGetSupportedEventTypes(dev_t_ d, u64 *t) { (void)d; *t = 0; return OK; }
int nvmlDeviceRegisterEvents(dev_t_ d, u64 t, void *s) { (void)d; (void)t; (void)s; return OK; }
int nvmlEventSetWait_v2(void *s, void *e, u32 ms) { (void)s; (void)e; usleep(ms * 1000); return TIMEOUT; }
int nvmlEventSetWait(void *s, void *e, u32 ms) { return nvmlEventSetWait_v2(s, e, ms); }

/* ---- MIG calls; GPU instance, compute instance and MIG device share one handle ---- */
typedef struct { u32 start, size; } place_t;
typedef struct { u32 id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa; u64 mb; } giprof_t;
typedef struct { u32 version, id, p2p, slices, count, sm, ce, dec, enc, jpeg, ofa; u64 mb; char name[96]; } giprof2_t;
typedef struct { u32 version, id, slices, count, sm, ce, dec, enc, jpeg, ofa; u64 mb; char name[96]; u32 caps; } giprof3_t;
typedef struct { u32 id, slices, count, sm, ce, dec, enc, jpeg, ofa; } ciprof_t;
typedef struct { u32 version; ciprof_t p; char name[96]; } ciprof2_t;       /* version 3 has one more field, zero */
typedef struct { dev_t_ dev; u32 id, prof; place_t at; } giinfo_t;
typedef struct { dev_t_ dev, gi; u32 id, prof; place_t at; } ciinfo_t;
typedef struct { u32 sm, ce, dec, enc, jpeg, ofa, gislices, cislices; u64 mb; } attr_t;

static int f_mode(struct state *s, void *x) {
	int on = *(int *)x;
	const char *r = getenv("MOCK_MIG_RESET");
	if (on == s->on) s->pending = -1;
	else if (busy() || (r && *r == '1')) s->pending = on;
	else if (s->n) return IN_USE;
	else { s->on = on; s->pending = -1; }
	return OK;
}
int nvmlDeviceGetMigMode(dev_t_ d, u32 *c, u32 *p) {
	*c = *p = 0;
	if (!layout()) return NOT_SUPPORTED;
	struct state s = snap(d->index);
	*c = s.on; *p = s.pending < 0 ? s.on : s.pending;
	return OK;
}
int nvmlDeviceSetMigMode(dev_t_ d, u32 m, int *act) {
	int on = m != 0, r = change(d->index, f_mode, &on);
	/* Where processes use the GPU, the call succeeds and the activation does not. Where instances are there, the call itself
	 * fails: the DRA driver relies on it, which tries this after each instance that it removes. */
	if (act) *act = busy() ? IN_USE : OK;
	return r;
}
int nvmlDeviceGetMaxMigDeviceCount(dev_t_ d, u32 *n) { (void)d; *n = layout() ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(dev_t_ d, u32 i, dev_t_ *m) {
	struct state s = snap(d->index);
	for (int k = 0; k < s.n; k++) if (s.i[k].ci && !i--) { *m = handle(d->index, s.i[k].gi); return OK; }
	return NOT_FOUND;
}
int nvmlDeviceIsMigDeviceHandle(dev_t_ d, u32 *y) { *y = d->gi >= 0; return OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(dev_t_ m, dev_t_ *d) { if (m->gi < 0) return INVALID; *d = &gpus[m->index]; return OK; }
int nvmlDeviceGetGpuInstanceId(dev_t_ m, u32 *i) { if (!find(m->index, m->gi, 0)) return NOT_FOUND; *i = m->gi; return OK; }
int nvmlDeviceGetComputeInstanceId(dev_t_ m, u32 *i) { if (!find(m->index, m->gi, 0)) return NOT_FOUND; *i = 0; return OK; }
int nvmlDeviceGetAttributes_v2(dev_t_ m, attr_t *a) {
	struct inst x;
	if (m->gi < 0) return NOT_SUPPORTED;
	if (!find(m->index, m->gi, &x)) return NOT_FOUND;
	*a = (attr_t){x.p->sm, x.p->ce, x.p->dec, 0, x.p->jpeg, x.p->ofa, x.p->slices, x.p->slices, x.p->mb};
	return OK;
}
int nvmlDeviceGetAttributes(dev_t_ m, attr_t *a) { return nvmlDeviceGetAttributes_v2(m, a); }

int nvmlDeviceGetGpuInstanceProfileInfo(dev_t_ d, u32 i, giprof_t *o) {
	const struct prof *p = layout() ? by_idx(i) : 0;
	(void)d;
	if (!p) return NOT_SUPPORTED;
	*o = (giprof_t){p->id, 0, p->slices, p->count, p->sm, p->ce, p->dec, 0, p->jpeg, p->ofa, p->mb};
	return OK;
}
int nvmlDeviceGetGpuInstanceProfileInfoV(dev_t_ d, u32 i, giprof2_t *o) {
	const struct prof *p = layout() ? by_idx(i) : 0;
	u32 v = o->version;
	(void)d;
	if (!p) return NOT_SUPPORTED;
	if (v >> 24 == 2) { *o = (giprof2_t){v, p->id, 0, p->slices, p->count, p->sm, p->ce, p->dec, 0, p->jpeg, p->ofa, p->mb, ""}; sprintf(o->name, "MIG %s", p->name); return OK; }
	if (v >> 24 != 3) return 25;                                      /* ARGUMENT_VERSION_MISMATCH */
	giprof3_t *q = (giprof3_t *)o;
	*q = (giprof3_t){v, p->id, p->slices, p->count, p->sm, p->ce, p->dec, 0, p->jpeg, p->ofa, p->mb, "", 0};
	sprintf(q->name, "MIG %s", p->name);
	return OK;
}
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(dev_t_ d, u32 id, place_t *o, u32 *n) {
	const struct prof *p = by_id(id);
	u32 k = 0;
	(void)d;
	if (!p) return INVALID;
	for (int at = 0; at < 8; at++) for (const signed char *c = p->starts; *c >= 0; c++) if (*c == at) { if (o) o[k] = (place_t){at, p->size}; k++; }
	*n = k;
	return OK;
}
int nvmlDeviceGetGpuInstancePossiblePlacements(dev_t_ d, u32 id, place_t *o, u32 *n) { return nvmlDeviceGetGpuInstancePossiblePlacements_v2(d, id, o, n); }
int nvmlDeviceGetGpuInstanceRemainingCapacity(dev_t_ d, u32 id, u32 *n) {
	const struct prof *p = by_id(id);
	struct state s = snap(d->index);
	if (!p) return INVALID;
	for (*n = 0; s.n < 8; ++*n) {
		int at = -1;
		for (const signed char *c = p->starts; *c >= 0 && at < 0; c++) if (fits(&s, p, *c)) at = *c;
		if (at < 0) break;
		add(&s, p, at, 0);
	}
	return OK;
}
struct make { const struct prof *p; int start, gi; };
static int f_make(struct state *s, void *v) {
	struct make *m = v;
	if (!s->on) return NOT_SUPPORTED;
	for (const signed char *c = m->p->starts; *c >= 0; c++) if ((m->start < 0 || m->start == *c) && s->n < 8 && fits(s, m->p, *c)) {
		add(s, m->p, *c, 0); m->gi = gi_of(m->p, *c);
		return OK;
	}
	return NO_ROOM;
}
static int make(dev_t_ d, u32 id, int start, dev_t_ *gi) {
	struct make m = {by_id(id), start, 0};
	if (!m.p) return INVALID;
	int r = change(d->index, f_make, &m);
	if (r == OK) *gi = handle(d->index, m.gi);
	return r;
}
int nvmlDeviceCreateGpuInstance(dev_t_ d, u32 id, dev_t_ *gi) { return make(d, id, -1, gi); }
int nvmlDeviceCreateGpuInstanceWithPlacement(dev_t_ d, u32 id, const place_t *at, dev_t_ *gi) { return make(d, id, at->start, gi); }
static int f_drop(struct state *s, void *x) {
	for (int k = 0; k < s->n; k++) if (s->i[k].gi == *(int *)x) {
		if (s->i[k].ci) return IN_USE;
		s->i[k] = s->i[--s->n];
		return OK;
	}
	return NOT_FOUND;
}
int nvmlGpuInstanceDestroy(dev_t_ gi) { return change(gi->index, f_drop, &gi->gi); }
int nvmlDeviceGetGpuInstances(dev_t_ d, u32 id, dev_t_ *o, u32 *n) {
	struct state s = snap(d->index);
	*n = 0;
	if (!s.on) return NOT_SUPPORTED;
	for (int k = 0; k < s.n; k++) if (s.i[k].p->id == id) o[(*n)++] = handle(d->index, s.i[k].gi);
	return OK;
}
int nvmlDeviceGetGpuInstanceById(dev_t_ d, u32 i, dev_t_ *gi) {
	if (!snap(d->index).on) return NOT_SUPPORTED;
	if (!find(d->index, i, 0)) return NOT_FOUND;
	*gi = handle(d->index, i);
	return OK;
}
int nvmlGpuInstanceGetInfo(dev_t_ gi, giinfo_t *o) {
	struct inst x;
	if (!find(gi->index, gi->gi, &x)) return NOT_FOUND;
	*o = (giinfo_t){&gpus[gi->index], x.gi, x.p->id, {x.start, x.p->size}};
	return OK;
}
/* compute instances: one per GPU instance, of its full size (profile numbers 0, 1, 2, 3, 4 for 1, 2, 3, 4, 7 slices) */
static u32 cip(const struct prof *p) { return p->slices == 7 ? 4 : p->slices - 1; }
static int ci_info(dev_t_ gi, u32 i, u32 eng, ciprof_t *o) {
	struct inst x;
	if (!find(gi->index, gi->gi, &x)) return NOT_FOUND;
	if (eng || i != cip(x.p)) return NOT_SUPPORTED;
	*o = (ciprof_t){cip(x.p), x.p->slices, 1, x.p->sm, x.p->ce, x.p->dec, 0, x.p->jpeg, x.p->ofa};
	return OK;
}
int nvmlGpuInstanceGetComputeInstanceProfileInfo(dev_t_ gi, u32 i, u32 eng, ciprof_t *o) { return ci_info(gi, i, eng, o); }
int nvmlGpuInstanceGetComputeInstanceProfileInfoV(dev_t_ gi, u32 i, u32 eng, ciprof2_t *o) {
	struct inst x;
	int r = ci_info(gi, i, eng, &o->p);
	if (r == OK && find(gi->index, gi->gi, &x)) sprintf(o->name, "MIG %s", x.p->name);
	return r;
}
int nvmlGpuInstanceGetComputeInstancePossiblePlacements(dev_t_ gi, u32 id, place_t *o, u32 *n) {
	struct inst x;
	if (!find(gi->index, gi->gi, &x) || id != cip(x.p)) return INVALID;
	if (o) *o = (place_t){0, x.p->slices};
	*n = 1;
	return OK;
}
int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(dev_t_ gi, u32 id, u32 *n) {
	struct inst x;
	if (!find(gi->index, gi->gi, &x) || id != cip(x.p)) return INVALID;
	*n = !x.ci;
	return OK;
}
static int f_ci(struct state *s, void *v) {
	int *x = v;                                                       /* GPU instance, wanted */
	for (int k = 0; k < s->n; k++) if (s->i[k].gi == x[0]) {
		if (s->i[k].ci == x[1]) return x[1] ? NO_ROOM : NOT_FOUND;
		s->i[k].ci = x[1];
		return OK;
	}
	return NOT_FOUND;
}
int nvmlGpuInstanceCreateComputeInstance(dev_t_ gi, u32 id, dev_t_ *ci) {
	struct inst x;
	if (!find(gi->index, gi->gi, &x)) return NOT_FOUND;
	if (id != cip(x.p)) return NOT_SUPPORTED;
	*ci = gi;
	return change(gi->index, f_ci, (int[]){gi->gi, 1});
}
int nvmlGpuInstanceCreateComputeInstanceWithPlacement(dev_t_ gi, u32 id, const place_t *at, dev_t_ *ci) { (void)at; return nvmlGpuInstanceCreateComputeInstance(gi, id, ci); }
int nvmlComputeInstanceDestroy(dev_t_ ci) { return change(ci->index, f_ci, (int[]){ci->gi, 0}); }
int nvmlGpuInstanceGetComputeInstances(dev_t_ gi, u32 id, dev_t_ *o, u32 *n) {
	struct inst x;
	*n = 0;
	if (!find(gi->index, gi->gi, &x)) return NOT_FOUND;
	if (x.ci && id == cip(x.p)) o[(*n)++] = gi;
	return OK;
}
int nvmlGpuInstanceGetComputeInstanceById(dev_t_ gi, u32 i, dev_t_ *ci) {
	struct inst x;
	if (i || !find(gi->index, gi->gi, &x) || !x.ci) return NOT_FOUND;
	*ci = gi;
	return OK;
}
int nvmlComputeInstanceGetInfo_v2(dev_t_ ci, ciinfo_t *o) {
	struct inst x;
	if (!find(ci->index, ci->gi, &x) || !x.ci) return NOT_FOUND;
	*o = (ciinfo_t){ci, ci, 0, cip(x.p), {0, x.p->slices}};         /* device: the MIG device, the DRA driver asks it for the UUID */
	return OK;
}
int nvmlComputeInstanceGetInfo(dev_t_ ci, ciinfo_t *o) { return nvmlComputeInstanceGetInfo_v2(ci, o); }
/* ---- processes ---- */
typedef struct { u32 pid; u64 mem; u32 gi, ci; } proc_t;   /* nvmlProcessInfo_t of v2 and v3 */
static int processes(dev_t_ d, const char *kind, u32 *n, proc_t *o) {
	const char *path = getenv("MOCK_PROCESSES");
	FILE *f = path && d->index == 0 ? fopen(path, "r") : 0;
	u32 k = 0, room = *n, pid, mb;
	char what[16];
	while (f && fscanf(f, "%15s %u %u", what, &pid, &mb) == 3) {
		if (strcmp(what, kind) && !(!strcmp(kind, "compute") && !strcmp(what, "mps"))) continue;
		if (k < room) o[k] = (proc_t){pid, (u64)mb << 20, ~0u, ~0u};
		k++;
	}
	if (f) fclose(f);
	*n = k;
	return k > room ? SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(dev_t_ d, u32 *n, proc_t *o) { return processes(d, "compute", n, o); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(dev_t_ d, u32 *n, proc_t *o) { return processes(d, "mps", n, o); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(dev_t_ d, u32 *n, proc_t *o) { return processes(d, "graphics", n, o); }

/* ---- readings ---- */
static int told(void) { return getenv("MOCK_READINGS") ? OK : NOT_SUPPORTED; }
typedef struct { u32 gpu, memory; } rates_t;
typedef struct { u32 field, scope; long long timestamp, latency; u32 type; int status; union { double d; u32 u; u64 ull; } value; } field_t;
int nvmlDeviceGetPowerUsage(dev_t_ d, u32 *mw) { (void)d; *mw = 61500; return told(); }
int nvmlDeviceGetFieldValues(dev_t_ d, int n, field_t *f) {
	(void)d;
	for (int i = 0; i < n; i++) {
		f[i].status = f[i].field == 186 ? told() : NOT_SUPPORTED;
		f[i].value.u = 62250;
	}
	return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(dev_t_ d, u64 *mj) { (void)d; *mj = 5000000123ull; return told(); }
int nvmlDeviceGetClockInfo(dev_t_ d, u32 which, u32 *mhz) { (void)d; *mhz = which == 1 ? 1410 : which == 2 ? 1215 : 0; return told(); }
int nvmlDeviceGetTemperature(dev_t_ d, u32 which, u32 *c) { (void)d; *c = which == 0 ? 41 : 0; return told(); }
int nvmlDeviceGetUtilizationRates(dev_t_ d, rates_t *r) { (void)d; r->gpu = 87; r->memory = 12; return told(); }
int nvmlDeviceGetCurrentClocksEventReasons(dev_t_ d, u64 *m) { (void)d; *m = 0x4; return told(); }
int nvmlDeviceGetNumGpuCores(dev_t_ d, u32 *n) { (void)d; *n = h200() ? 132 * 128 : 108 * 64; return OK; }

/* ---- GPM: a sample is a number, and two of them give the metric's own ---- */
typedef struct { u32 version, supported; } gpm_support_t;
typedef struct { u32 id; int status; double value; char *names[3]; } gpm_metric_t;
typedef struct { u32 version, n; int *first, *second; gpm_metric_t metrics[]; } gpm_get_t;
int nvmlGpmQueryDeviceSupport(dev_t_ d, gpm_support_t *s) { (void)d; s->supported = told() == OK; return OK; }
int nvmlGpmSampleAlloc(int **s) { *s = calloc(1, sizeof **s); return *s ? OK : INVALID; }
int nvmlGpmSampleFree(int *s) { free(s); return OK; }
int nvmlGpmSampleGet(dev_t_ d, int *s) { static int taken; (void)d; *s = ++taken; return told(); }
int nvmlGpmMetricsGet(gpm_get_t *g) {
	if (g->version != 1 || *g->second <= *g->first) return INVALID;
	for (u32 i = 0; i < g->n; i++) {
		u32 id = g->metrics[i].id;
		g->metrics[i].status = id == 2 || id == 3 || id == 10 ? OK : NOT_SUPPORTED;
		g->metrics[i].value = id == 2 ? 62.5 : id == 3 ? 31.25 : 12.5;
	}
	return OK;
}
