/*
 * rkt-userns: becomes root of a user namespace, and then rkt, in the same
 * process. An ordinary user's rkt executes it; what it is to do is all decided
 * there. The Go runtime is no place for this: unshare(2) and setns(2) of a user
 * namespace want a process with one thread.
 *
 *   rkt-userns new  NEWUIDMAP PID MAP… -- NEWGIDMAP PID MAP… -- RKT ARGS…
 *   rkt-userns join NAMESPACE -- RKT ARGS…
 *
 * newuidmap(1) and newgidmap(1) must be started by a process that stays outside,
 * so two children are made first. They wait until the namespace is there, put
 * this process's id in PID's place, and become those programs.
 */

#include <linux/fcntl.h>
#include <linux/sched.h>
#include <linux/signal.h>
#include <linux/types.h>

#include "../../../stage1/podinit/sys.h"

static char **envp;
static char self[24];

static unsigned long length(const char *s)
{
	unsigned long n = 0;

	while (s[n])
		n++;
	return n;
}

static void say(const char *s)
{
	SYS3(write, 2, s, length(s));
}

static const char *number(long n, char *buf, unsigned long size)
{
	unsigned long i = size;

	buf[--i] = 0;
	do {
		buf[--i] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	return buf + i;
}

static void die(const char *what, long err)
{
	char buf[24];

	say("rkt: user namespace: ");
	say(what);
	if (err) {
		say(": error ");
		say(number(-err, buf, sizeof(buf)));
	}
	say("\n");
	quit(254);
}

static long must(const char *what, long ret)
{
	if (ret < 0)
		die(what, ret);
	return ret;
}

/* part cuts the words up to the next "--" off, and returns what comes after. */
static char **part(char **words)
{
	for (; *words; words++) {
		if ((*words)[0] == '-' && (*words)[1] == '-' && !(*words)[2]) {
			*words = 0;
			return words + 1;
		}
	}
	die("a part of the call is missing", 0);
	return 0;
}

/* mapper makes a child that becomes a program once the pipe says so. */
static long mapper(char **argv, const int *pipe)
{
	char word;
	long pid = must("fork", SYS5(clone, SIGCHLD, 0, 0, 0, 0)), n;

	if (pid > 0)
		return pid;
	SYS1(close, pipe[1]);
	n = SYS3(read, pipe[0], &word, 1);
	if (n != 1)
		quit(1);
	SYS3(execve, argv[0], argv, envp);
	quit(127);
	return 0;
}

static void wait_for(long pid, const char *program)
{
	int status = 0;

	must(program, SYS4(wait4, pid, &status, 0, 0));
	if (status)
		die(program, 0);
}

static void become_root(char **argv)
{
	must("group 0", SYS3(setresgid, 0, 0, 0));
	must("user 0", SYS3(setresuid, 0, 0, 0));
	must(argv[0], SYS3(execve, argv[0], argv, envp));
}

static void make(char **uids)
{
	char **gids = part(uids), **rkt = part(gids);
	int pipe[2];
	long u, g;

	uids[1] = gids[1] = (char *)number(SYS0(getpid), self, sizeof(self));
	must("pipe", SYS2(pipe2, pipe, O_CLOEXEC));
	u = mapper(uids, pipe);
	g = mapper(gids, pipe);
	must("unshare", SYS1(unshare, CLONE_NEWUSER));
	must("pipe", SYS3(write, pipe[1], "gg", 2));
	wait_for(u, uids[0]);
	wait_for(g, gids[0]);
	SYS1(close, pipe[0]);
	SYS1(close, pipe[1]);
	become_root(rkt);
}

static void join(char **words)
{
	char **rkt = part(words);
	long fd = must(words[0], SYS4(openat, AT_FDCWD, words[0], O_RDONLY | O_CLOEXEC, 0));

	must("join", SYS2(setns, fd, CLONE_NEWUSER));
	SYS1(close, fd);
	become_root(rkt);
}

static void run(long argc, char **argv)
{
	envp = argv + argc + 1;
	if (argc < 5)
		die("rkt starts this program", 0);
	if (argv[1][0] == 'n')
		make(argv + 2);
	join(argv + 2);
}
