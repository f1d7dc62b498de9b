/*
 * Gives a supervisor a mount namespace of its own. unshare(2) works on one
 * thread, and the Go runtime has started others before the first line of Go
 * runs; a constructor runs before the runtime.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "stage1: %s: %s\n", what, strerror(errno));
	if (errno == EPERM)
		fprintf(stderr, "stage1: hint: this needs root and CAP_SYS_ADMIN\n");
	_exit(254);
}

/* The C library hands main's arguments to constructors as well. */
__attribute__((constructor)) static void rkt_unshare(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "run") != 0)
		return;
	if (unshare(CLONE_NEWNS) < 0)
		die("unshare the mount namespace");
	/* Slave: nothing that is mounted here gets out, unmounts on the host come in. */
	if (mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		die("cut the mounts off from the host's");
}
