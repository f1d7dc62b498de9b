#include "textflag.h"

// start asks for the flags of descriptor 1 and goes on to the runtime, which
// finds on the stack what the kernel put there.
TEXT ·start(SB), NOSPLIT|NOFRAME, $0
	MOVD	$25, R8 // fcntl
	MOVD	$1, R0
	MOVD	$1, R1 // F_GETFD
	SVC
	MOVD	R0, ·stdoutFlags(SB)
	B	_rt0_arm64_linux(SB)
