/*
 * What applaunch does inside the app's root: opening and making paths, and
 * changing and hiding what is mounted there.
 */

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

/* make makes the last thing that is missing of a path. */
static long make(long dir, const char *name, int folder)
{
	long ret;

	if (folder) {
		ret = SYS3(mkdirat, dir, name, 0755);
	} else {
		ret = SYS4(openat, dir, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_WRONLY, 0644);
		if (ret >= 0)
			ret = SYS1(close, ret);
	}
	/* Someone else made it: then it is there. */
	return ret == -EEXIST_ ? 0 : ret;
}

/* A path as it is walked: its rest, from p. */
static struct {
	char text[2 * PAGE];
	const char *p;
	char name[256];
	unsigned long len; /* of the name */
	int original;      /* no link's text is in it */
	int links;
} walk;

static long walk_begin(const char *path)
{
	unsigned long n;

	for (n = 0; path[n]; n++) {
		if (n >= PAGE - 1)
			return -ENAMETOOLONG_;
		walk.text[n] = path[n];
	}
	walk.text[n] = 0;
	walk.p = walk.text;
	walk.original = 1;
	walk.links = 0;
	return 0;
}

/* walk_name takes the next name from the path; it is empty at the end. */
static long walk_name(void)
{
	unsigned long n;

	while (*walk.p == '/')
		walk.p++;
	for (n = 0; walk.p[n] && walk.p[n] != '/'; n++) {
		if (n == sizeof(walk.name) - 1)
			return -ENAMETOOLONG_;
		walk.name[n] = walk.p[n];
	}
	walk.name[n] = 0;
	walk.len = n;
	return 0;
}

/* walk_last says whether nothing comes after the name. */
static int walk_last(void)
{
	const char *q = walk.p + walk.len;

	while (*q == '/')
		q++;
	return !*q;
}

/* walk_link puts a link's text in its name's place. */
static long walk_link(const char *link, unsigned long n)
{
	const char *q = walk.p + walk.len;
	unsigned long m = 0, i;

	while (q[m])
		m++;
	if (n + m + 1 > sizeof(walk.text))
		return -ENAMETOOLONG_;
	/* What comes after moves first, from the end that is not overwritten. */
	if (q < walk.text + n)
		for (i = m + 1; i-- > 0;)
			walk.text[n + i] = q[i];
	else
		for (i = 0; i <= m; i++)
			walk.text[n + i] = q[i];
	for (i = 0; i < n; i++)
		walk.text[i] = link[i];
	walk.p = walk.text;
	walk.original = 0;
	return 0;
}

/*
 * follow goes on where a name could not be opened, as there is nothing: to
 * where the link leads that the name is, or makes it. It returns the folder to
 * go on from.
 */
static long follow(long dir, int folder, __u64 resolve)
{
	char link[PAGE];
	long n = SYS4(readlinkat, dir, walk.name, link, sizeof(link) - 1), ret;

	if (n > 0) {
		if (++walk.links > 40 || (resolve & RESOLVE_NO_SYMLINKS))
			return -ELOOP_;
		ret = walk_link(link, (unsigned long)n);
		if (ret < 0 || link[0] != '/')
			return ret < 0 ? ret : dir;
		SYS1(close, dir);
		return open_in(AT_FDCWD, "/", O_PATH, 0);
	}
	if (n != -ENOENT_ && n != -EINVAL_)
		return n;
	ret = make(dir, walk.name, folder || !walk_last());
	return ret < 0 ? ret : dir;
}

/*
 * target opens a path, and makes what is missing of it: folders, and at the
 * end a folder or a file, as `like` is one. -1 is like a folder. Symbolic links
 * lead to what they name, also to what isn't there yet, but never by a magic
 * link of /proc. The root is the app's by now, so nothing leads out of it.
 */
static long target(const char *path, long like, __u64 resolve)
{
	__u32 mode = DIRECTORY;
	long dir, fd, ret;
	int tries = 0;

	resolve |= RESOLVE_NO_MAGICLINKS;
	fd = open_in(AT_FDCWD, path, O_PATH, resolve);
	if (fd != -ENOENT_ && fd != -ENOTDIR_)
		return fd;
	ret = like < 0 ? 0 : mode_of(like, &mode);
	if (ret == 0)
		ret = walk_begin(path);
	if (ret < 0)
		return ret;
	dir = open_in(AT_FDCWD, "/", O_PATH, 0);
	while (dir >= 0) {
		ret = walk_name();
		if (ret < 0)
			return ret;
		if (walk.len == 0)
			return dir;
		fd = open_in(dir, walk.name, O_PATH, resolve);
		if (fd >= 0) {
			SYS1(close, dir);
			dir = fd;
			walk.p += walk.len;
			tries = 0;
			continue;
		}
		if (fd == -ENOTDIR_ && walk.original)
			detail = (__u32)(walk.p - walk.text);
		if (fd != -ENOENT_ || ++tries > 40)
			return fd;
		dir = follow(dir, mode == DIRECTORY, resolve);
	}
	return dir;
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
 * each further time: before Linux 6.15 only what is attached can be copied. The
 * device is the host's own: read-only, so that nobody changes its mode or owner
 * by the name of what it hides.
 */
static long mask(const char *path, long null, __u64 how)
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
	if (ret == 0 && !covers[i].attached)
		ret = attr(cover, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, 0, how);
	if (covers[i].attached)
		SYS1(close, cover);
	covers[i].attached = 1;
	SYS1(close, fd);
	return ret;
}
