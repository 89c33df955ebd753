/* A file system that lacks something: preloaded, it makes the calls fail that such a file system refuses.

   REFUSED is "memory locks" (locks on the file that SQLite shares as memory, as on NFS), "memory map" (mapping it, as on
   FUSE), "memory file" (opening it), or "locks" (locks on bytes of any file). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_refused(const char *what)
{
    const char *refused = getenv("REFUSED");
    return refused != NULL && strcmp(refused, what) == 0;
}

static int is_memory(const char *name)
{
    size_t length = name == NULL ? 0 : strlen(name);
    return length > 4 && strcmp(name + length - 4, "-shm") == 0;
}

static int is_open_memory(int descriptor)
{
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0)
        return 0;
    name[length] = 0;
    if (length > 10 && strcmp(name + length - 10, " (deleted)") == 0)
        name[length - 10] = 0;
    return is_memory(name);
}

static int refuses_lock(int descriptor, int command)
{
    if (command != F_SETLK && command != F_SETLKW && command != F_OFD_SETLK && command != F_OFD_SETLKW)
        return 0;
    return is_refused("locks") || (is_refused("memory locks") && is_open_memory(descriptor));
}

#define DEFINE_FCNTL(name)                                                                                             \
    int name(int descriptor, int command, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, command);                                                                                       \
        void *argument = va_arg(rest, void *);                                                                         \
        va_end(rest);                                                                                                  \
        int (*real)(int, int, ...) = dlsym(RTLD_NEXT, #name);                                                          \
        if (refuses_lock(descriptor, command)) {                                                                       \
            errno = is_refused("locks") ? ENOLCK : EAGAIN;                                                             \
            return -1;                                                                                                 \
        }                                                                                                              \
        return real(descriptor, command, argument);                                                                    \
    }

DEFINE_FCNTL(fcntl)
DEFINE_FCNTL(fcntl64)

#define DEFINE_OPEN(name)                                                                                              \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = va_arg(rest, int);                                                                                  \
        va_end(rest);                                                                                                  \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);                                                 \
        if (is_refused("memory file") && is_memory(path)) {                                                            \
            errno = EACCES;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        return real(path, flags, mode);                                                                                \
    }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_MMAP(name)                                                                                              \
    void *name(void *start, size_t length, int protection, int flags, int descriptor, off_t offset)                    \
    {                                                                                                                  \
        void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, #name);                                 \
        if (is_refused("memory map") && descriptor >= 0 && (flags & MAP_SHARED) && is_open_memory(descriptor)) {       \
            errno = ENODEV;                                                                                            \
            return MAP_FAILED;                                                                                         \
        }                                                                                                              \
        return real(start, length, protection, flags, descriptor, offset);                                             \
    }

DEFINE_MMAP(mmap)
DEFINE_MMAP(mmap64)
