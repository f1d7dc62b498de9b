#include "textflag.h"

// start asks for the flags of descriptor 1 and goes on to the runtime. It has no
// stack of its own: what the kernel put there is the runtime's to find, and so is
// DX.
TEXT ·start(SB), NOSPLIT|NOFRAME, $0
	MOVQ	DX, R12
	MOVL	$72, AX // fcntl
	MOVL	$1, DI
	MOVL	$1, SI // F_GETFD
	SYSCALL
	MOVQ	AX, ·stdoutFlags(SB)
	MOVQ	R12, DX
	JMP	_rt0_amd64_linux(SB)
