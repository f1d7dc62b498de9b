/*
 * The system calls of programs without a C library, and where such a program
 * begins: it has a function `run` that gets main's arguments.
 */

#include <asm/unistd.h>

static long sys(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
#error "system calls of this architecture are not known"
#endif
}

#define SYS0(n) sys(__NR_##n, 0, 0, 0, 0, 0, 0)
#define SYS1(n, a) sys(__NR_##n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b) sys(__NR_##n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c) sys(__NR_##n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) sys(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(n, a, b, c, d, e) sys(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

#define SYS6(n, a, b, c, d, e, f) sys(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void quit(int code)
{
	for (;;)
		SYS1(exit_group, code);
}

static void run(long argc, char **argv);

#if __STDC_HOSTED__
/* Built without -ffreestanding it works the same, only bigger. */
int main(int argc, char **argv)
{
	run(argc, argv);
	return 1;
}
#else
__attribute__((used)) void start(long *stack)
{
	run(stack[0], (char **)(stack + 1));
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n\thlt\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29, #0\n\tmov x0, sp\n\tbl start\n\tbrk #0\n");
#endif
#endif
