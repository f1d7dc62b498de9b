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
	if (SYS3(write, CONTROL, &m, sizeof(m)) < 0)
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

static long open_in(long dir, const char *path, __u64 flags, __u64 resolve)
{
	struct open_how how;

	how.flags = flags | O_CLOEXEC;
	how.mode = 0;
	how.resolve = resolve;
	return SYS4(openat2, dir, path, &how, sizeof(how));
}

static long mode_of(long fd, __u32 *mode)
{
	struct statx st;
	long ret = SYS5(statx, fd, "", AT_EMPTY_PATH, STATX_TYPE, &st);

	*mode = st.stx_mode & 0170000;
	return ret;
}

#define DIRECTORY 0040000

/*
 * target opens a path, and makes what is missing of it: folders, and at the
 * end a folder or a file, as `like` is one. -1 is like a folder. Symbolic links
 * lead to what they name, also to what isn't there yet, but never by a magic
 * link of /proc. The root is the app's by now, so nothing leads out of it.
 */
static long target(const char *path, long like, __u64 resolve)
{
	static char rest[2 * PAGE];
	char name[256], link[PAGE];
	const char *p, *q;
	unsigned long n, m, i;
	int links = 0, tries = 0, original = 1;
	long dir, fd, ret;
	__u32 mode = DIRECTORY;

	resolve |= RESOLVE_NO_MAGICLINKS;
	fd = open_in(AT_FDCWD, path, O_PATH, resolve);
	if (fd != -ENOENT_ && fd != -ENOTDIR_)
		return fd;
	if (like >= 0) {
		ret = mode_of(like, &mode);
		if (ret < 0)
			return ret;
	}
	for (n = 0; path[n]; n++) {
		if (n >= PAGE - 1)
			return -ENAMETOOLONG_;
		rest[n] = path[n];
	}
	rest[n] = 0;
	p = rest;
	dir = open_in(AT_FDCWD, "/", O_PATH, 0);
	for (;;) {
		if (dir < 0)
			return dir;
		while (*p == '/')
			p++;
		for (n = 0; p[n] && p[n] != '/'; n++) {
			if (n == sizeof(name) - 1)
				return -ENAMETOOLONG_;
			name[n] = p[n];
		}
		name[n] = 0;
		if (n == 0)
			return dir;
		fd = open_in(dir, name, O_PATH, resolve);
		if (fd >= 0) {
			SYS1(close, dir);
			dir = fd;
			p += n;
			tries = 0;
			continue;
		}
		if (fd == -ENOTDIR_ && original)
			detail = (__u32)(p - rest);
		if (fd != -ENOENT_ || ++tries > 40)
			return fd;
		ret = SYS4(readlinkat, dir, name, link, sizeof(link) - 1);
		if (ret > 0) {
			/* A link to what is not there: its text takes its name's place. */
			if (++links > 40 || (resolve & RESOLVE_NO_SYMLINKS))
				return -ELOOP_;
			q = p + n;
			for (m = 0; q[m]; m++)
				;
			if ((unsigned long)ret + m + 1 > sizeof(rest))
				return -ENAMETOOLONG_;
			/* Only ever towards the end or in place: from the last byte. */
			if (q < rest + ret)
				for (i = m + 1; i-- > 0;)
					rest[(unsigned long)ret + i] = q[i];
			else
				for (i = 0; i <= m; i++)
					rest[(unsigned long)ret + i] = q[i];
			for (i = 0; i < (unsigned long)ret; i++)
				rest[i] = link[i];
			p = rest;
			original = 0;
			if (link[0] == '/') {
				SYS1(close, dir);
				dir = open_in(AT_FDCWD, "/", O_PATH, 0);
			}
			continue;
		}
		if (ret != -ENOENT_ && ret != -EINVAL_)
			return ret;
		for (q = p + n; *q == '/'; q++)
			;
		if (*q || mode == DIRECTORY) {
			ret = SYS3(mkdirat, dir, name, 0755);
		} else {
			ret = SYS4(openat, dir, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_WRONLY, 0644);
			if (ret >= 0)
				SYS1(close, ret);
		}
		if (ret < 0 && ret != -17 /* EEXIST: someone else made it, so look again */)
			return ret;
	}
}

#define ATTR_RECURSIVE 1
#define ATTR_OLD 2 /* as on a kernel without mount_setattr(2) */

static const struct {
	__u32 attr, flag;
} attributes[] = {
	{ MOUNT_ATTR_RDONLY, MS_RDONLY },   { MOUNT_ATTR_NOSUID, MS_NOSUID },
	{ MOUNT_ATTR_NODEV, MS_NODEV },     { MOUNT_ATTR_NOEXEC, MS_NOEXEC },
	{ MOUNT_ATTR_NOATIME, MS_NOATIME }, { MOUNT_ATTR_STRICTATIME, MS_STRICTATIME },
	{ MOUNT_ATTR_NODIRATIME, MS_NODIRATIME },
};

/*
 * attr changes a mount, which must be attached. Before Linux 5.12 mount(2)
 * does, through the host's /proc/self/fd, which slot 0 is a descriptor of. It
 * can't change what is mounted below.
 */
static long attr(long fd, __u64 set, __u64 clear, __u64 propagation, __u64 how)
{
	struct mount_attr a;
	struct {
		long type, bsize;
		__u64 blocks[5];
		__u64 fsid;
		long namelen, frsize, flags, spare[4];
	} st;
	char name[12];
	__u64 flags = 0;
	unsigned i = sizeof(name);
	long ret, n = fd;

	a.attr_set = set;
	a.attr_clr = clear;
	a.propagation = propagation;
	a.userns_fd = 0;
	ret = -ENOSYS_;
	if (!(how & ATTR_OLD))
		ret = SYS5(mount_setattr, fd, "", AT_EMPTY_PATH | (how & ATTR_RECURSIVE ? AT_RECURSIVE : 0), &a, sizeof(a));
	if (ret != -ENOSYS_)
		return ret;
	ret = SYS2(fstatfs, fd, &st);
	if (ret < 0)
		return ret;
	name[--i] = 0;
	do {
		name[--i] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	ret = SYS1(fchdir, slots[0]);
	if (ret < 0)
		return ret;
	if (set | clear) {
		if (how & ATTR_RECURSIVE)
			return -ENOSYS_;
		flags = (__u64)st.flags & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME);
		for (n = 0; n < (long)(sizeof(attributes) / sizeof(attributes[0])); n++) {
			if (clear & attributes[n].attr)
				flags &= ~(__u64)attributes[n].flag;
			if (set & attributes[n].attr)
				flags |= attributes[n].flag;
		}
		ret = SYS5(mount, "", name + i, 0, MS_REMOUNT | MS_BIND | flags, 0);
	}
	if (ret == 0 && propagation)
		ret = SYS5(mount, "", name + i, 0, propagation | (how & ATTR_RECURSIVE ? MS_REC : 0), 0);
	SYS1(chdir, "/");
	return ret;
}

static long move(long from, long to)
{
	return SYS5(move_mount, from, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* nothing makes the folder that hides folders. */
static long nothing(void)
{
	long fs = SYS2(fsopen, "tmpfs", FSOPEN_CLOEXEC), ret;

	if (fs < 0)
		return fs;
	ret = SYS5(fsconfig, fs, FSCONFIG_SET_STRING, "nr_inodes", "1", 0);
	if (ret == 0)
		ret = SYS5(fsconfig, fs, FSCONFIG_SET_STRING, "mode", "755", 0);
	if (ret == 0)
		ret = SYS5(fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0);
	if (ret == 0)
		ret = SYS3(fsmount, fs, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	SYS1(close, fs);
	return ret;
}

/*
 * mask hides a path, if it is there: a file with the host's null device, a
 * folder with an empty one. Each of the two is attached once, and a copy of it
 * each further time: before Linux 6.15 only what is attached can be copied.
 */
static long mask(const char *path, long null)
{
	static struct {
		long mount;
		int attached;
	} covers[2];
	__u32 mode;
	long fd = open_in(AT_FDCWD, path, O_PATH, RESOLVE_NO_MAGICLINKS), cover, ret;
	int i;

	if (fd == -ENOENT_)
		return 0;
	if (fd < 0)
		return fd;
	ret = mode_of(fd, &mode);
	if (ret < 0)
		return ret;
	i = mode == DIRECTORY;
	if (!covers[i].attached) {
		cover = i ? nothing() : null;
		covers[i].mount = cover;
	} else {
		cover = SYS3(open_tree, covers[i].mount, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	}
	if (cover < 0)
		return cover;
	ret = move(cover, fd);
	if (covers[i].attached)
		SYS1(close, cover);
	covers[i].attached = 1;
	SYS1(close, fd);
	return ret;
}

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
		return mask((const char *)a[0], (long)a[1]);
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
