/* A preloaded library that ends or fails a process at one numbered call that changes files below a folder.
 *
 * Built and used by tests/chaos/server.py: LD_PRELOAD puts these functions in front of the C library's, so that
 * Python and the SQLite inside apsw go through them. Nothing happens until chaos_arm() is called; the counter and the
 * list of calls lie in memory that the caller shares with the parent process, so that they outlive a kill.
 *
 * chaos_log() has every change that succeeded written to a file, with its bytes: from it power_cut.py makes what a disk
 * may hold after a loss of power.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define RECORDS 16384
#define PATH_CHARS 148

/* How a point is hit; the same numbers are in server.py. */
enum mode { COUNT, KILL, TORN, FULL_ONCE, FULL, BROKEN_ONCE, BROKEN, SHORT };
/* What a call needs: a full disk refuses SPACE and DATA, a broken one refuses everything. */
enum need { NOTHING, SPACE, DATA };
enum fate { GO_ON, REFUSE, HALF };

struct record {
  char kind[11];
  char need;
  char path[PATH_CHARS];
};
struct board {
  _Atomic long count;
  struct record records[RECORDS];
};

static struct board *board;
static char root[PATH_MAX];
static size_t root_length;
static long point;
static enum mode mode;
static _Atomic int is_spent;
static int log_file = -1;

void chaos_log(int descriptor) { log_file = descriptor; }

void chaos_arm(struct board *shared, const char *folder, long at, int how) {
  strncpy(root, folder, sizeof root - 1);
  root_length = strlen(root);
  point = at;
  mode = how;
  is_spent = 0;
  board = shared;
}

void chaos_disarm(void) { board = NULL; }

static int is_below(const char *path) {
  return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == '\0');
}

/* The path behind a descriptor; an empty text for a pipe or an error. */
static const char *path_of(int descriptor, char *into) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, into, PATH_MAX - 1);
  into[length < 0 ? 0 : length] = '\0';
  return into;
}

static const char *full_path(int folder, const char *path, char *into) {
  if (path[0] == '/') {
    return path;
  }
  char parent[PATH_MAX];
  if (folder == AT_FDCWD) {
    if (getcwd(parent, sizeof parent) == NULL) {
      return path;
    }
  } else {
    path_of(folder, parent);
  }
  snprintf(into, PATH_MAX, "%.2000s/%.2000s", parent, path);
  return into;
}

static void end_here(void) {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) {
    pause();
  }
}

static enum fate refuse(int why) {
  errno = why;
  return REFUSE;
}

static enum fate fate_at(long number, enum need need) {
  int is_first = number >= point && (number == point || !is_spent);
  switch (mode) {
  case KILL:
    if (number == point) {
      end_here();
    }
    return GO_ON;
  case TORN:
    if (number == point) {
      return need == DATA ? HALF : (end_here(), GO_ON);
    }
    return GO_ON;
  case FULL_ONCE:
    return number == point && need != NOTHING ? refuse(ENOSPC) : GO_ON;
  case FULL:
    return number >= point && need != NOTHING ? refuse(ENOSPC) : GO_ON;
  case BROKEN_ONCE:
    return number == point ? refuse(EIO) : GO_ON;
  case BROKEN:
    return number >= point ? refuse(EIO) : GO_ON;
  case SHORT:
    if (is_first && need == DATA) {
      is_spent = 1;
      return HALF;
    }
    return is_spent && need != NOTHING ? refuse(ENOSPC) : GO_ON;
  default:
    return GO_ON;
  }
}

static enum fate meet(const char *kind, const char *path, enum need need) {
  if (board == NULL || !is_below(path)) {
    return GO_ON;
  }
  long number = atomic_fetch_add(&board->count, 1) + 1;
  if (number <= RECORDS) {
    struct record *record = &board->records[number - 1];
    strncpy(record->kind, kind, sizeof record->kind - 1);
    record->need = (char)('0' + need);
    /* the end of a path says more than its beginning */
    const char *tail = path + root_length;
    size_t length = strlen(tail);
    strncpy(record->path, length < PATH_CHARS ? tail : tail + length - PATH_CHARS + 1, PATH_CHARS - 1);
  }
  return fate_at(number, need);
}

static enum fate meet_descriptor(const char *kind, int descriptor, enum need need) {
  char path[PATH_MAX];
  if (board == NULL) {
    return GO_ON;
  }
  int before = errno;
  path_of(descriptor, path);
  errno = before;
  return meet(kind, path, need);
}

static enum fate meet_at(const char *kind, int folder, const char *path, enum need need) {
  char whole[PATH_MAX];
  if (board == NULL || path == NULL) {
    return GO_ON;
  }
  return meet(kind, full_path(folder, path, whole), need);
}

/* After half of a write: a torn write ends the process, a short one returns. */
static void after_half(void) {
  if (mode == TORN) {
    end_here();
  }
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The head of an event in the log; the two paths and the bytes follow. power_cut.py reads the same layout. */
struct event {
  char kind[8];
  uint64_t inode, offset, path_length, other_length, data_length;
};

static void append_event(char kind, uint64_t inode, uint64_t offset, const char *path, const char *other,
                         const void *data, size_t length) {
  struct event event = {{kind}, inode, offset, strlen(path), strlen(other), length};
  struct iovec parts[] = {{&event, sizeof event},
                          {(void *)path, event.path_length},
                          {(void *)other, event.other_length},
                          {(void *)data, length}};
  int before = errno;
  syscall(SYS_writev, log_file, parts, 4);
  errno = before;
}

static int is_logged(const char *path) { return log_file >= 0 && board != NULL && is_below(path); }

/* Note what happened to an open file: W(rite), T(runcate) or S(ync), which has the time of the last write as its offset. */
static void note_file(char kind, int descriptor, off64_t offset, const void *data, size_t length) {
  char path[PATH_MAX];
  struct stat found;
  if (log_file >= 0 && is_logged(path_of(descriptor, path)) && fstat(descriptor, &found) == 0) {
    int64_t written = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
    append_event(kind, found.st_ino, kind == 'S' ? written : offset, path, "", data, length);
  }
}

static void note_write(int descriptor, const void *data, ssize_t done) {
  if (log_file >= 0 && done > 0) {
    note_file('W', descriptor, lseek64(descriptor, 0, SEEK_CUR) - done, data, done);
  }
}

/* Note what happened to a name: C(reate), M(ake a folder), R(ename), L(ink), U(nlink), Y (symbolic link). */
static void note_name(char kind, int folder, const char *path, int from_folder, const char *from) {
  char whole[PATH_MAX], other[PATH_MAX];
  struct stat found = {0};
  path = full_path(folder, path, whole);
  if (is_logged(path)) {
    fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW);
    append_event(kind, found.st_ino, 0, path, *from != '\0' ? full_path(from_folder, from, other) : "", "", 0);
  }
}

/* `kind` is the event, or 0 for what a loss of power need not undo; `from` is the other name of a rename or link. */
#define ON_PATHS(name, kind, need_of, declared, passed, folder, path, from_folder, from) \
  int name declared { \
    if (meet_at(#name, folder, path, need_of) == REFUSE) { \
      return -1; \
    } \
    int done = REAL(name) passed; \
    if (done == 0 && kind != 0 && log_file >= 0) { \
      note_name(kind, folder, path, from_folder, from); \
    } \
    return done; \
  }
#define ON_PATH(name, kind, need_of, declared, passed, folder, path) \
  ON_PATHS(name, kind, need_of, declared, passed, folder, path, AT_FDCWD, "")
#define ON_DESCRIPTOR(name, kind, need_of, declared, passed, size) \
  int name declared { \
    if (meet_descriptor(#name, descriptor, need_of) == REFUSE) { \
      return -1; \
    } \
    int done = REAL(name) passed; \
    if (done == 0 && kind != 0) { \
      note_file(kind, descriptor, size, "", 0); \
    } \
    return done; \
  }

ON_PATHS(rename, 'R', SPACE, (const char *from, const char *to), (from, to), AT_FDCWD, to, AT_FDCWD, from)
ON_PATHS(renameat, 'R', SPACE, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to), to_at, to,
         at, from)
ON_PATHS(renameat2, 'R', SPACE, (int at, const char *from, int to_at, const char *to, unsigned flags),
         (at, from, to_at, to, flags), to_at, to, at, from)
ON_PATH(unlink, 'U', NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(unlinkat, 'U', NOTHING, (int at, const char *path, int flags), (at, path, flags), at, path)
ON_PATH(rmdir, 'U', NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(remove, 'U', NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(mkdir, 'M', SPACE, (const char *path, mode_t bits), (path, bits), AT_FDCWD, path)
ON_PATH(mkdirat, 'M', SPACE, (int at, const char *path, mode_t bits), (at, path, bits), at, path)
ON_PATHS(link, 'L', SPACE, (const char *from, const char *to), (from, to), AT_FDCWD, to, AT_FDCWD, from)
ON_PATHS(linkat, 'L', SPACE, (int at, const char *from, int to_at, const char *to, int flags),
         (at, from, to_at, to, flags), to_at, to, at, from)
ON_PATHS(symlink, 'Y', SPACE, (const char *target, const char *path), (target, path), AT_FDCWD, path, AT_FDCWD, target)
ON_PATHS(symlinkat, 'Y', SPACE, (const char *target, int at, const char *path), (target, at, path), at, path, AT_FDCWD,
         target)
ON_PATH(chmod, 0, NOTHING, (const char *path, mode_t bits), (path, bits), AT_FDCWD, path)
ON_PATH(fchmodat, 0, NOTHING, (int at, const char *path, mode_t bits, int flags), (at, path, bits, flags), at, path)
ON_PATH(utimensat, 0, NOTHING, (int at, const char *path, const struct timespec times[2], int flags),
        (at, path, times, flags), at, path)
ON_PATH(truncate, 0, SPACE, (const char *path, off_t length), (path, length), AT_FDCWD, path)
ON_PATH(truncate64, 0, SPACE, (const char *path, off64_t length), (path, length), AT_FDCWD, path)
ON_DESCRIPTOR(ftruncate, 'T', SPACE, (int descriptor, off_t length), (descriptor, length), length)
ON_DESCRIPTOR(ftruncate64, 'T', SPACE, (int descriptor, off64_t length), (descriptor, length), length)
ON_DESCRIPTOR(fsync, 'S', SPACE, (int descriptor), (descriptor), 0)
ON_DESCRIPTOR(fdatasync, 'S', SPACE, (int descriptor), (descriptor), 0)
ON_DESCRIPTOR(fchmod, 0, NOTHING, (int descriptor, mode_t bits), (descriptor, bits), 0)
ON_DESCRIPTOR(fallocate, 0, SPACE, (int descriptor, int flags, off_t from, off_t length),
              (descriptor, flags, from, length), 0)
ON_DESCRIPTOR(fallocate64, 0, SPACE, (int descriptor, int flags, off64_t from, off64_t length),
              (descriptor, flags, from, length), 0)

/* posix_fallocate returns its error instead of setting errno. */
int posix_fallocate(int descriptor, off_t from, off_t length) {
  return meet_descriptor("posix_fall", descriptor, SPACE) == REFUSE ? errno
                                                                    : REAL(posix_fallocate)(descriptor, from, length);
}

int posix_fallocate64(int descriptor, off64_t from, off64_t length) {
  return meet_descriptor("posix_fall", descriptor, SPACE) == REFUSE ? errno
                                                                    : REAL(posix_fallocate64)(descriptor, from, length);
}

static size_t halve(size_t length) { return length > 1 ? length / 2 : length; }

ssize_t write(int descriptor, const void *data, size_t length) {
  enum fate fate = meet_descriptor("write", descriptor, DATA);
  if (fate == REFUSE) {
    return -1;
  }
  ssize_t done = REAL(write)(descriptor, data, fate == HALF ? halve(length) : length);
  note_write(descriptor, data, done);
  if (fate == HALF) {
    after_half();
  }
  return done;
}

#define ON_PWRITE(name, offset_type) \
  ssize_t name(int descriptor, const void *data, size_t length, offset_type from) { \
    enum fate fate = meet_descriptor(#name, descriptor, DATA); \
    if (fate == REFUSE) { \
      return -1; \
    } \
    ssize_t done = REAL(name)(descriptor, data, fate == HALF ? halve(length) : length, from); \
    if (done > 0) { \
      note_file('W', descriptor, from, data, done); \
    } \
    if (fate == HALF) { \
      after_half(); \
    } \
    return done; \
  }
ON_PWRITE(pwrite, off_t)
ON_PWRITE(pwrite64, off64_t)

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  enum fate fate = meet_descriptor("writev", descriptor, DATA);
  if (fate == REFUSE) {
    return -1;
  }
  ssize_t done = REAL(writev)(descriptor, parts, fate == HALF && count > 1 ? count / 2 : count);
  if (fate == HALF) {
    after_half();
  }
  return done;
}

/* While changes are logged, copies inside the kernel are refused, so that callers read and write the bytes. */
#define ON_TRANSFER(name, target, declared, passed_of) \
  ssize_t name declared { \
    if (log_file >= 0) { \
      errno = ENOSYS; \
      return -1; \
    } \
    enum fate fate = meet_descriptor(#name, target, DATA); \
    if (fate == REFUSE) { \
      return -1; \
    } \
    size_t some = fate == HALF ? halve(length) : length; \
    ssize_t done = REAL(name) passed_of; \
    if (fate == HALF) { \
      after_half(); \
    } \
    return done; \
  }
ON_TRANSFER(copy_file_range, to, (int from, off64_t *at, int to, off64_t *to_at, size_t length, unsigned flags),
            (from, at, to, to_at, some, flags))

ssize_t sendfile(int to, int from, off_t *at, size_t length) {
  ssize_t (*real)(int, int, off_t *, size_t) = dlsym(RTLD_NEXT, "sendfile");
  if (log_file >= 0) {
    errno = EINVAL;
    return -1;
  }
  enum fate fate = meet_descriptor("sendfile", to, DATA);
  if (fate == REFUSE) {
    return -1;
  }
  ssize_t done = real(to, from, at, fate == HALF ? halve(length) : length);
  if (fate == HALF) {
    after_half();
  }
  return done;
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t length) { return sendfile(to, from, (off_t *)at, length); }

/* Opening changes a folder or a file only when it may create or cut off. */
static int is_made_by(int folder, const char *path, int flags) {
  struct stat found;
  int before = errno;
  int is_there = fstatat(folder, path, &found, 0) == 0;
  errno = before;
  return (flags & O_CREAT) != 0 && !is_there;
}

static enum fate meet_open(int folder, const char *path, int flags, int is_made) {
  if (!is_made && (flags & O_TRUNC) == 0 && (flags & O_TMPFILE) != O_TMPFILE &&
      (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL)) {
    return GO_ON; /* the file exists and stays as it is */
  }
  return meet_at("open", folder, path, SPACE);
}

static int note_open(int descriptor, int flags, int folder, const char *path, int is_made) {
  if (log_file >= 0 && descriptor >= 0) {
    if (is_made) {
      note_name('C', folder, path, AT_FDCWD, "");
    } else if ((flags & O_TRUNC) != 0) {
      note_file('T', descriptor, 0, "", 0);
    }
  }
  return descriptor;
}

#define ON_OPEN(name, declared, folder, passed) \
  int name declared { \
    mode_t bits = 0; \
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
      va_list rest; \
      va_start(rest, flags); \
      bits = va_arg(rest, mode_t); \
      va_end(rest); \
    } \
    int is_made = board != NULL && is_made_by(folder, path, flags); \
    if (meet_open(folder, path, flags, is_made) == REFUSE) { \
      return -1; \
    } \
    return note_open(REAL(name) passed, flags, folder, path, is_made); \
  }
ON_OPEN(open, (const char *path, int flags, ...), AT_FDCWD, (path, flags, bits))
ON_OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, (path, flags, bits))
ON_OPEN(openat, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, bits))
ON_OPEN(openat64, (int folder, const char *path, int flags, ...), folder, (folder, path, flags, bits))
