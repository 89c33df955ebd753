/* A preloaded library that ends or fails a process at one numbered call that changes files below a folder.
 *
 * Built and used by tests/chaos/server.py: LD_PRELOAD puts these functions in front of the C library's, so that
 * Python and the SQLite inside apsw go through them. Nothing happens until chaos_arm() is called; the counter and the
 * list of calls lie in memory that the caller shares with the parent process, so that they outlive a kill.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
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

#define ON_PATH(name, need_of, declared, passed, folder, path) \
  int name declared { \
    return meet_at(#name, folder, path, need_of) == REFUSE ? -1 : REAL(name) passed; \
  }
#define ON_DESCRIPTOR(name, need_of, declared, passed) \
  int name declared { \
    return meet_descriptor(#name, descriptor, need_of) == REFUSE ? -1 : REAL(name) passed; \
  }

ON_PATH(rename, SPACE, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_PATH(renameat, SPACE, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to), to_at, to)
ON_PATH(renameat2, SPACE, (int at, const char *from, int to_at, const char *to, unsigned flags),
        (at, from, to_at, to, flags), to_at, to)
ON_PATH(unlink, NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(unlinkat, NOTHING, (int at, const char *path, int flags), (at, path, flags), at, path)
ON_PATH(rmdir, NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(remove, NOTHING, (const char *path), (path), AT_FDCWD, path)
ON_PATH(mkdir, SPACE, (const char *path, mode_t bits), (path, bits), AT_FDCWD, path)
ON_PATH(mkdirat, SPACE, (int at, const char *path, mode_t bits), (at, path, bits), at, path)
ON_PATH(link, SPACE, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_PATH(linkat, SPACE, (int at, const char *from, int to_at, const char *to, int flags), (at, from, to_at, to, flags),
        to_at, to)
ON_PATH(symlink, SPACE, (const char *target, const char *path), (target, path), AT_FDCWD, path)
ON_PATH(symlinkat, SPACE, (const char *target, int at, const char *path), (target, at, path), at, path)
ON_PATH(chmod, NOTHING, (const char *path, mode_t bits), (path, bits), AT_FDCWD, path)
ON_PATH(fchmodat, NOTHING, (int at, const char *path, mode_t bits, int flags), (at, path, bits, flags), at, path)
ON_PATH(utimensat, NOTHING, (int at, const char *path, const struct timespec times[2], int flags),
        (at, path, times, flags), at, path)
ON_PATH(truncate, SPACE, (const char *path, off_t length), (path, length), AT_FDCWD, path)
ON_PATH(truncate64, SPACE, (const char *path, off64_t length), (path, length), AT_FDCWD, path)
ON_DESCRIPTOR(ftruncate, SPACE, (int descriptor, off_t length), (descriptor, length))
ON_DESCRIPTOR(ftruncate64, SPACE, (int descriptor, off64_t length), (descriptor, length))
ON_DESCRIPTOR(fsync, SPACE, (int descriptor), (descriptor))
ON_DESCRIPTOR(fdatasync, SPACE, (int descriptor), (descriptor))
ON_DESCRIPTOR(fchmod, NOTHING, (int descriptor, mode_t bits), (descriptor, bits))
ON_DESCRIPTOR(fallocate, SPACE, (int descriptor, int flags, off_t from, off_t length),
              (descriptor, flags, from, length))
ON_DESCRIPTOR(fallocate64, SPACE, (int descriptor, int flags, off64_t from, off64_t length),
              (descriptor, flags, from, length))

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

#define ON_TRANSFER(name, target, declared, passed_of) \
  ssize_t name declared { \
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
static enum fate meet_open(int folder, const char *path, int flags) {
  int is_change = (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  if (!is_change) {
    return GO_ON;
  }
  if ((flags & (O_CREAT | O_EXCL | O_TRUNC)) == O_CREAT) {
    struct stat found;
    if (fstatat(folder, path, &found, 0) == 0) {
      return GO_ON; /* the file exists and stays as it is */
    }
    errno = 0;
  }
  return meet_at("open", folder, path, SPACE);
}

#define BITS_OF(flags, bits) \
  mode_t bits = 0; \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest; \
    va_start(rest, flags); \
    bits = va_arg(rest, mode_t); \
    va_end(rest); \
  }

int open(const char *path, int flags, ...) {
  BITS_OF(flags, bits)
  return meet_open(AT_FDCWD, path, flags) == REFUSE ? -1 : REAL(open)(path, flags, bits);
}

int open64(const char *path, int flags, ...) {
  BITS_OF(flags, bits)
  return meet_open(AT_FDCWD, path, flags) == REFUSE ? -1 : REAL(open64)(path, flags, bits);
}

int openat(int folder, const char *path, int flags, ...) {
  BITS_OF(flags, bits)
  return meet_open(folder, path, flags) == REFUSE ? -1 : REAL(openat)(folder, path, flags, bits);
}

int openat64(int folder, const char *path, int flags, ...) {
  BITS_OF(flags, bits)
  return meet_open(folder, path, flags) == REFUSE ? -1 : REAL(openat64)(folder, path, flags, bits);
}
