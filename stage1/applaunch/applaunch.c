/*
 * applaunch: becomes an app, or a program beside one. What it does on the way
 * is a list of operations that stage1/launch/direct has compiled: nearly all
 * are system calls, and all decisions are taken there. See that package's
 * program.go for the other side of the list's format.
 *
 *   gcc -Os -static -nostdlib -nostartfiles -ffreestanding -fno-stack-protector \
 *       -fno-builtin -fno-pie -no-pie -fno-asynchronous-unwind-tables \
 *       -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro \
 *       -s -o bin/applaunch stage1/applaunch/applaunch.c
 *
 * Started with descriptor 3, a SEQPACKET socket to the supervisor, and 4, a
 * memory file:
 *
 *   first page    struct header, shared: the supervisor reads the pid in it
 *   then          the operations, and after them the blob, both private here:
 *                 arguments and variables can be megabytes, and are used where
 *                 they are
 *
 *   applaunch                                  supervisor
 *   in the app's cgroup, joins namespaces
 *   clone(CLONE_PARENT), which writes the pid
 *   into the header, and ends                  reaps it, reads the pid
 *     the child sets itself up
 *     T + the pty's master, if there is one ▶
 *     READY ───────────────────────────────▶   looks that the limits hold
 *          ◀───────────────────────────────    one byte
 *     gives up its privileges, executes the
 *     program, which closes the socket ────▶   the end of the file: it runs
 *
 * An operation that fails is answered with its index and the errno, and is the
 * last. The kernel closes the socket when, and only when, the program has been
 * executed or the process is gone, so there is nothing to confuse with the
 * program's own end.
 */

#include <linux/close_range.h>
#include <linux/fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/signal.h>
#include <linux/stat.h>
#include <linux/types.h>
#include <linux/uio.h>

#include "../podinit/sys.h"

#define CONTROL 3
#define PROGRAM 4

#define PAGE 4096
#define SLOTS 4096

#define PROT_RW 3
#define SHARED_ 1
#define PRIVATE_ 2

#define EPERM_ 1
#define ENOENT_ 2
#define EINTR_ 4
#define EACCES_ 13
#define EEXIST_ 17
#define ENOTDIR_ 20
#define EISDIR_ 21
#define EINVAL_ 22
#define EPIPE_ 32
#define ENAMETOOLONG_ 36
#define ENOSYS_ 38
#define ELOOP_ 40

#define AT_EACCESS_ 0x200
#define X_OK_ 1
#define CLONE_PARENT_ 0x8000
#define CLONE_PARENT_SETTID_ 0x100000
#define SOL_SOCKET_ 1
#define SCM_RIGHTS_ 1

struct header {
	__u32 magic;
	__u32 ops;
	__u32 files; /* the first descriptor that is not meant for this program */
	__s32 pid;   /* written by clone(2) */
	__u64 size;  /* of the private part */
};

#define MAGIC 0x726b7431

enum kind { IMMEDIATE, POINTER, SAVED };

/* Operations that are no system call; program.go has the same list. */
enum {
	OP_FORK = 0x10000,
	OP_READY,
	OP_TARGET,
	OP_ATTR,
	OP_MASK,
	OP_SEND,
	OP_SIGNALS,
	OP_CHDIR,
	OP_FILTER,
	OP_EXEC,
	OP_SOCKETS,
};

struct op {
	__u32 call;
	__s32 save;    /* slot of the result, -1 for none */
	__s32 okay[4]; /* errnos that are no failure: then `skip` operations are left out */
	__u32 skip;
	__u32 pad;
	__u8 kind[8];
	__u64 arg[6];
};

enum { MSG_ERROR = 'E', MSG_READY = 'R', MSG_TERMINAL = 'T' };

struct message {
	__u32 what;
	__u32 op;
	__s32 err;
	__u32 detail;
};

static struct header *head;
static char *base;
static long slots[SLOTS];
static long control = CONTROL; /* moves when the program gets sockets */
/* More of a failure: how much of a path was there, or that it was looked up. */
static __u32 detail;

static void tell(__u32 what, __u32 op, long err)
{
	struct message m;

	m.what = what;
	m.op = op;
	m.err = (__s32)-err;
	m.detail = detail;
	/* Without a supervisor there is no app; the end of the pod takes care of it. */
	if (SYS3(write, control, &m, sizeof(m)) < 0)
		quit(1);
}

static void fail(__u32 op, long err)
{
	tell(MSG_ERROR, op, err);
	quit(1);
}

/* become continues in a child of the supervisor's own. */
static long become(void)
{
	long ret;

	/*
	 * The supervisor learns the pid from the header: the kernel writes it
	 * before the child runs, so that not even a kill between clone and the
	 * next line leaves a child that nobody knows of.
	 */
	head->pid = 0;
	ret = SYS5(clone, CLONE_PARENT_ | CLONE_PARENT_SETTID_ | SIGCHLD, 0, &head->pid, 0, 0);
	if (ret > 0)
		quit(0);
	return ret;
}

static long ready(void)
{
	char word;
	long n;

	tell(MSG_READY, 0, 0);
	do {
		n = SYS3(read, CONTROL, &word, 1);
	} while (n == -EINTR_);
	if (n <= 0)
		quit(1);
	return 0;
}

#include "inside.h"

/* send gives the supervisor a descriptor. */
static long send(long fd)
{
	struct message m = { MSG_TERMINAL, 0, 0, 0 };
	struct iovec part = { &m, sizeof(m) };
	struct {
		__u64 len;
		int level, type;
		int fd, pad;
	} control = { 20, SOL_SOCKET_, SCM_RIGHTS_, (int)fd, 0 };
	struct {
		void *name;
		__u64 namelen;
		struct iovec *iov;
		__u64 iovlen;
		void *control;
		__u64 controllen;
		__u64 flags;
	} msg = { 0, 0, &part, 1, &control, sizeof(control), 0 };

	return SYS3(sendmsg, CONTROL, &msg, 0);
}

/*
 * signals undoes what the program would inherit of rkt's caller. Only SIGHUP
 * stays as nohup(1) left it.
 */
static long signals(void)
{
	__u64 action[4], none = 0;
	long sig, ret;

	for (sig = 0; sig < 4; sig++)
		action[sig] = 0;
	for (sig = 1; sig <= 64; sig++) {
		if (sig == SIGHUP || sig == SIGKILL || sig == SIGSTOP)
			continue;
		ret = SYS4(rt_sigaction, sig, action, 0, 8);
		if (ret < 0)
			return ret;
	}
	return SYS4(rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
}

/*
 * enter goes to the working folder: first as root, and if that is refused, as
 * on a folder that only the app's user may enter, once more as that one. A
 * folder that is not below the root is none (CVE-2024-21626).
 */
static long enter(const char *path, long last)
{
	static int there;
	char cwd[PAGE];
	long ret = 0;

	if (!there) {
		ret = SYS1(chdir, path);
		there = ret == 0;
	}
	if (!last)
		return ret == -EACCES_ || ret == -EPERM_ ? 0 : ret;
	if (ret < 0)
		return ret;
	ret = SYS2(getcwd, cwd, sizeof(cwd));
	if (ret >= 0 && cwd[0] != '/')
		ret = -ENOENT_;
	return ret < 0 ? ret : 0;
}

static long filter(long n, void *code, long flags)
{
	struct sock_fprog prog = { (unsigned short)n, code };

	return SYS3(seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

/*
 * sockets puts the program's n sockets where it looks for them, from 3 on, and
 * the control socket right above. They come in order from first, which lies
 * above 3, so that none is overwritten before it is copied. Whom they are for
 * is said by the pid that the program will have.
 */
static long sockets(long first, long n, char *text)
{
	long i, high, pid = SYS0(getpid), size = 1;

	high = SYS3(fcntl, control, F_DUPFD_CLOEXEC, first + n);
	if (high < 0)
		return high;
	control = high;
	for (i = 0; i <= n; i++) {
		long from = i < n ? first + i : high;
		long ret = SYS3(dup3, from, CONTROL + i, i < n ? 0 : O_CLOEXEC);

		if (ret < 0)
			return ret;
	}
	control = CONTROL + n;
	SYS1(close, high);
	for (i = pid; i >= 10; i /= 10)
		size++;
	for (text[size] = 0; size > 0; pid /= 10)
		text[--size] = (char)('0' + pid % 10);
	return 0;
}

static char **pointers(__u64 *list)
{
	unsigned long i;

	for (i = 0; list[i]; i++)
		list[i] += (__u64)base;
	return (char **)list;
}

/*
 * execute tries the program's candidates: one if it has a path, else one for
 * each folder of PATH, of which the first that can be executed is taken.
 */
static long execute(__u64 *candidates, __u64 *argv, __u64 *envp, long lookup)
{
	char **paths = pointers(candidates), **args = pointers(argv), **env = pointers(envp);
	struct statx st;
	int dir;

	for (; *paths; paths++) {
		dir = SYS5(statx, AT_FDCWD, *paths, 0, STATX_TYPE, &st) == 0 && (st.stx_mode & 0170000) == DIRECTORY;
		if (!lookup)
			return dir ? -EISDIR_ : SYS3(execve, *paths, args, env);
		if (dir)
			continue;
		if (SYS4(faccessat2, AT_FDCWD, *paths, X_OK_, AT_EACCESS_) == 0)
			return SYS3(execve, *paths, args, env);
	}
	detail = 1;
	return -ENOENT_;
}

static long perform(const struct op *o, const __u64 *a)
{
	switch (o->call) {
	case OP_FORK:
		return become();
	case OP_READY:
		return ready();
	case OP_TARGET:
		return target((const char *)a[0], (long)a[1], a[2]);
	case OP_ATTR:
		return attr((long)a[0], a[1], a[2], a[3], a[4]);
	case OP_MASK:
		return mask((const char *)a[0], (long)a[1], a[2]);
	case OP_SEND:
		return send((long)a[0]);
	case OP_SIGNALS:
		return signals();
	case OP_CHDIR:
		return enter((const char *)a[0], (long)a[1]);
	case OP_FILTER:
		return filter((long)a[0], (void *)a[1], (long)a[2]);
	case OP_EXEC:
		return execute((__u64 *)a[0], (__u64 *)a[1], (__u64 *)a[2], (long)a[3]);
	case OP_SOCKETS:
		return sockets((long)a[0], (long)a[1], (char *)a[2]);
	}
	return sys(o->call, (long)a[0], (long)a[1], (long)a[2], (long)a[3], (long)a[4], (long)a[5]);
}

static void play(void)
{
	const struct op *ops = (const struct op *)base, *o;
	__u64 a[6];
	__u32 i, k;
	long ret;

	for (i = 0; i < head->ops; i++) {
		o = &ops[i];
		for (k = 0; k < 6; k++) {
			a[k] = o->arg[k];
			if (o->kind[k] == POINTER)
				a[k] += (__u64)base;
			else if (o->kind[k] == SAVED)
				a[k] = (__u64)slots[a[k] % SLOTS];
		}
		ret = perform(o, a);
		if (o->save >= 0)
			slots[o->save % SLOTS] = ret;
		if (ret >= 0)
			continue;
		for (k = 0; k < 4; k++)
			if (o->okay[k] && ret == -o->okay[k])
				break;
		if (k == 4)
			fail(i, ret);
		i += o->skip;
	}
}

static void run(long argc, char **argv)
{
	long ret;

	(void)argc;
	(void)argv;
	ret = SYS6(mmap, 0, PAGE, PROT_RW, SHARED_, PROGRAM, 0);
	if (ret < 0 && ret > -PAGE)
		fail(~0u, ret);
	head = (struct header *)ret;
	if (head->magic != MAGIC)
		fail(~0u, -EINVAL_);
	/* Whatever a part of the supervisor left open by mistake. */
	SYS3(close_range, head->files, ~0u, 0);
	ret = SYS6(mmap, 0, head->size, PROT_RW, PRIVATE_, PROGRAM, PAGE);
	if (ret < 0 && ret > -PAGE)
		fail(~0u, ret);
	base = (char *)ret;
	SYS1(close, PROGRAM);
	SYS3(fcntl, CONTROL, F_SETFD, FD_CLOEXEC);
	/* Executed through a descriptor, its name is a number. */
	SYS5(prctl, PR_SET_NAME, "applaunch", 0, 0, 0);
	/* Nobody in the pod may look into it (CVE-2016-9962). */
	SYS5(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	play();
	quit(1);
}
