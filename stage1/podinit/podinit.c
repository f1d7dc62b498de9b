/*
 * podinit: PID 1 of a pod. It owns the pod's namespaces, reaps its orphans,
 * and ends, taking every process of the pod with it, when the supervisor ends.
 *
 *   gcc -Os -static -nostdlib -nostartfiles -ffreestanding -fno-stack-protector \
 *       -fno-builtin -fno-pie -no-pie -fno-asynchronous-unwind-tables \
 *       -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro \
 *       -s -o bin/podinit stage1/podinit/podinit.c
 *
 * There is one of it in each pod for all of the pod's life, and it is started
 * on the way of every start, so it is built without a C library: a few
 * kilobytes instead of a megabyte.
 *
 * Called as `podinit HOSTNAME own|host`, made with clone(NEWPID|NEWNS|NEWIPC|
 * NEWUTS and, for "own", NEWNET), with descriptor 3, a SEQPACKET socket to the
 * supervisor:
 *
 *   podinit                         supervisor
 *   sethostname, loopback up
 *   R  ─────────────────────────▶   opens the namespaces' descriptors
 *      ◀─────────────────────────  G
 *   empty root, no capabilities,
 *   not dumpable, death signal
 *   K  ─────────────────────────▶   the pod's namespaces are jailed
 *      ◀─────────────────────────  A, which shows that it lived when the death
 *   closes the socket               signal was asked for
 *   reaps until the death signal comes
 *
 * Called without arguments it waits for the end of descriptor 3 and exits.
 *
 * The end of the file instead of G or A means that the supervisor is gone.
 *
 * After that it has no descriptor open, and must have none: an app with
 * CAP_SYS_PTRACE can take any of them with pidfd_getfd(2). A pidfd of the
 * supervisor would give it all of the supervisor's own descriptors by a second
 * such call, and a socket would give it the pidfd, by SO_PEERPIDFD.
 *
 * A step that fails is answered with `E`, its errno in decimal, a blank and
 * its name, and podinit exits with 1.
 */

#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/signal.h>
#include <linux/sockios.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "sys.h"

#define CONTROL 3

#define AF_INET_ 2
#define SOCK_DGRAM_CLOEXEC (2 | 02000000)
#define MNT_DETACH_ 2
#define EINVAL_ 22
#define EINTR_ 4
#define ECONNRESET_ 104

/* linux/if.h pulls in the C library's headers. */
#define IFF_UP_ 1
struct ifreq_flags {
	char name[16];
	short flags;
	char rest[22];
};

static unsigned long length(const char *s)
{
	unsigned long n = 0;
	while (s[n])
		n++;
	return n;
}

/* die tells the supervisor what failed and ends the pod. */
static void die(const char *step, long err)
{
	char msg[96];
	char digits[20];
	unsigned long n = 0, d = 0, i;
	unsigned long left = err < 0 ? (unsigned long)-err : 0;

	msg[n++] = 'E';
	do {
		digits[d++] = (char)('0' + left % 10);
		left /= 10;
	} while (left);
	while (d)
		msg[n++] = digits[--d];
	msg[n++] = ' ';
	for (i = 0; step[i] && n < sizeof(msg); i++)
		msg[n++] = step[i];
	SYS3(write, CONTROL, msg, n);
	quit(1);
}

static long must(const char *step, long ret)
{
	if (ret < 0)
		die(step, ret);
	return ret;
}

static void tell(const char *word)
{
	must("answer", SYS3(write, CONTROL, word, 1));
}

static void loopback(void)
{
	struct ifreq_flags req = { .name = "lo" };
	long s = must("open a socket for the loopback device", SYS3(socket, AF_INET_, SOCK_DGRAM_CLOEXEC, 0));

	must("read the loopback device's flags", SYS3(ioctl, s, SIOCGIFFLAGS, &req));
	req.flags |= IFF_UP_;
	must("bring the loopback device up", SYS3(ioctl, s, SIOCSIFFLAGS, &req));
	SYS1(close, s);
}

/* hear waits for the supervisor's next word. */
static void hear(const char *step)
{
	char word;
	long n;

	do {
		n = SYS3(read, CONTROL, &word, 1);
	} while (n == -EINTR_);
	/* The end of the file, or a reset: the supervisor is gone. */
	if (n == 0 || n == -ECONNRESET_)
		quit(1);
	must(step, n);
}

/*
 * empty_root leaves a read-only tmpfs with nothing in it as the root. The
 * apps see PID 1 through /proc/1/root, and one with CAP_SYS_PTRACE may walk
 * in: what PID 1 has as root is what that app gets of the host.
 */
static void empty_root(void)
{
	must("make the mounts private", SYS5(mount, "", "/", 0, MS_REC | MS_PRIVATE, 0));
	/* /proc is there, podinit was executed through it. */
	must("mount the empty root",
	     SYS5(mount, "podinit", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,nr_inodes=1,mode=0555"));
	must("enter the empty root", SYS1(chdir, "/proc"));
	must("pivot into the empty root", SYS2(pivot_root, ".", "."));
	/* The old root now lies on top of the new one, at the same place. */
	must("detach the host's root", SYS2(umount2, ".", MNT_DETACH_));
	must("enter the new root", SYS1(chdir, "/"));
	must("make the empty root read-only",
	     SYS5(mount, "", "/", 0, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, 0));
}

static void drop_privileges(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
	long cap, ret;

	for (cap = 0; cap < 64; cap++) {
		ret = SYS5(prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
		if (ret == -EINVAL_ && cap > 0)
			break; /* past the last one that this kernel knows */
		must("drop the capability bounding set", ret);
	}
	must("forbid new privileges", SYS5(prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must("clear the ambient capabilities", SYS5(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
	must("drop all capabilities", SYS2(capset, &header, none));
	must("forbid dumps", SYS5(prctl, PR_SET_DUMPABLE, 0, 0, 0, 0));
}

static void reap(void)
{
	long ret;

	do {
		ret = SYS5(wait4, -1, 0, WNOHANG, 0, 0);
	} while (ret > 0 || ret == -EINTR_);
}

static void serve(void)
{
	unsigned long child = 1ul << (SIGCHLD - 1);

	for (;;) {
		reap();
		/* One that came meanwhile is pending: signals are blocked. */
		SYS4(rt_sigtimedwait, &child, 0, 0, 8);
	}
}

static void run(long argc, char **argv)
{
	unsigned long all = ~0ul;

	/* Alone it holds a place until the supervisor says, or ends. */
	if (argc == 1)
		hear("hold a place");
	if (argc != 3)
		die("count the arguments", -EINVAL_);
	/* Signals must not end it, not even those that the terminal sends. */
	must("block signals", SYS4(rt_sigprocmask, SIG_SETMASK, &all, 0, 8));
	must("leave the terminal", SYS0(setsid));
	/* Executed through a descriptor, its name is a number. */
	must("take its name", SYS5(prctl, PR_SET_NAME, "podinit", 0, 0, 0));
	must("set the hostname", SYS2(sethostname, argv[1], length(argv[1])));
	if (argv[2][0] == 'o')
		loopback();
	tell("R");
	hear("wait for the go");
	empty_root();
	drop_privileges();
	/*
	 * A change of credentials clears the death signal, so it comes last. The
	 * supervisor may have died before it: then no signal comes, ever, and
	 * getppid() is 0 in a new pid namespace whether it lives or not. Its
	 * answer to K tells that it outlived this line.
	 */
	must("ask for the death signal", SYS5(prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	must("close the standard descriptors", SYS3(close_range, 0, CONTROL - 1, 0));
	must("close other descriptors", SYS3(close_range, CONTROL + 1, ~0u, 0));
	tell("K");
	hear("wait for the answer");
	SYS1(close, CONTROL);
	serve();
}
