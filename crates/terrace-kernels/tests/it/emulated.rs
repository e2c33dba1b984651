//! Tile instructions of AMX on machines without them: what an illegal instruction would have done is done by the signal's
//! handler, as Intel's Software Developer's Manual, volume 2, defines it. Slow, but every test of tiles runs everywhere.

use std::cell::RefCell;
use std::sync::Once;
use terrace_kernels::{Isa, bf16_to_f32};

/// Returns the instruction sets that tests can use: AMX is emulated where the machine has all else that it needs.
pub fn available() -> Vec<Isa> {
    let mut all = Isa::available().to_vec();
    if all.last() == Some(&Isa::Avx512Bf16) {
        install();
        all.push(Isa::Amx);
    }
    all
}

/// The registers of a thread: 8 tiles of 16 rows of 64 bytes, and their shapes.
struct State {
    tiles: [[[u8; 64]; 16]; 8],
    rows: [usize; 8],
    bytes: [usize; 8],
}

thread_local! {
    static STATE: RefCell<State> =
        const { RefCell::new(State { tiles: [[[0; 64]; 16]; 8], rows: [0; 8], bytes: [0; 8] }) };
}

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an action of the form that SA_SIGINFO asks for; all zeros are an empty mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
        }
    });
}

/// An instruction's parts.
struct Decoded {
    /// Operands: of the register and the `r/m` fields, and of VEX.vvvv.
    reg: usize,
    rm: usize,
    vvvv: usize,
    /// Its first byte in memory, if it has a memory operand, and the bytes between rows.
    address: u64,
    stride: u64,
    is_memory: bool,
    /// VEX.pp and the opcode.
    prefix: u8,
    opcode: u8,
    length: u64,
}

extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the thread's context, and code that was executed can be read.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize];
        match decode(at as *const u8, registers) {
            Some(decoded) => {
                STATE.with_borrow_mut(|state| execute(&decoded, state));
                registers[libc::REG_RIP as usize] = at + decoded.length as i64;
            }
            // Another instruction: the next attempt ends the process.
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

fn register(number: usize, registers: &[i64]) -> u64 {
    use libc::{REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    use libc::{REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RSI, REG_RSP};
    const ORDER: [i32; 16] = [
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    ];
    registers[ORDER[number] as usize].cast_unsigned()
}

/// # Safety
/// An instruction's bytes can be read at `at`.
unsafe fn decode(at: *const u8, registers: &[i64]) -> Option<Decoded> {
    // SAFETY: the caller's contract: no instruction of these is shorter than what is read of it.
    let byte = |i: usize| unsafe { at.add(i).read() };
    // VEX of three bytes, map 0F38, 128 bits.
    if byte(0) != 0xc4 || byte(1) & 0x1f != 2 || byte(2) & 0x84 != 0 {
        return None;
    }
    let (r, x, b) = (!byte(1) >> 7 & 1, !byte(1) >> 6 & 1, !byte(1) >> 5 & 1);
    let (vvvv, prefix, opcode, modrm) = (!byte(2) >> 3 & 15, byte(2) & 3, byte(3), byte(4));
    let (mode, mut rm) = (modrm >> 6, usize::from(modrm & 7 | b << 3));
    let (mut address, mut stride, mut length) = (0u64, 0u64, 5);
    if mode < 3 {
        let mut no_base = false;
        if rm & 7 == 4 {
            let sib = byte(5);
            length += 1;
            let index = usize::from(sib >> 3 & 7 | x << 3);
            if index != 4 {
                stride = register(index, registers) << (sib >> 6);
            }
            rm = usize::from(sib & 7 | b << 3);
            no_base = mode == 0 && rm & 7 == 5;
        } else if mode == 0 && rm & 7 == 5 {
            // Relative to the next instruction.
            let displacement = i32::from_le_bytes([byte(5), byte(6), byte(7), byte(8)]);
            let next = (at as u64).wrapping_add(9);
            address = next.wrapping_add_signed(i64::from(displacement));
            return Some(Decoded {
                reg: 0,
                rm: 0,
                vvvv: 0,
                address,
                stride,
                is_memory: true,
                prefix,
                opcode,
                length: 9,
            });
        }
        if !no_base {
            address = register(rm, registers);
        }
        let displacement = match mode {
            1 => i64::from(byte(length).cast_signed()),
            2 => i64::from(i32::from_le_bytes(std::array::from_fn(|i| byte(length + i)))),
            _ if no_base => i64::from(i32::from_le_bytes(std::array::from_fn(|i| byte(length + i)))),
            _ => 0,
        };
        length += match mode {
            1 => 1,
            2 => 4,
            _ if no_base => 4,
            _ => 0,
        };
        address = address.wrapping_add_signed(displacement);
    }
    Some(Decoded {
        reg: usize::from(modrm >> 3 & 7 | r << 3),
        rm,
        vvvv: usize::from(vvvv),
        address,
        stride,
        is_memory: mode < 3,
        prefix,
        opcode,
        length: length as u64,
    })
}

/// # Safety
/// The instruction's memory can be accessed.
unsafe fn execute(of: &Decoded, state: &mut State) {
    const NONE: u8 = 0;
    const X66: u8 = 1;
    const F3: u8 = 2;
    const F2: u8 = 3;
    match (of.prefix, of.opcode, of.is_memory) {
        // LDTILECFG: palette, first row, 14 zeros, bytes of rows and rows of 8 tiles; all tiles become zero.
        (NONE, 0x49, true) => {
            // SAFETY: the caller's contract: 64 bytes.
            let config = unsafe { (of.address as *const [u8; 64]).read_unaligned() };
            assert_eq!((config[0], config[1]), (1, 0), "palette 1, from the first row");
            assert!(config[2..16].iter().chain(&config[32..48]).chain(&config[56..]).all(|&b| b == 0));
            for tile in 0..8 {
                state.bytes[tile] =
                    usize::from(u16::from_le_bytes([config[16 + 2 * tile], config[17 + 2 * tile]]));
                state.rows[tile] = usize::from(config[48 + tile]);
                assert!(state.bytes[tile] <= 64 && state.rows[tile] <= 16, "a fault");
            }
            state.tiles = [[[0; 64]; 16]; 8];
        }
        // TILERELEASE
        (NONE, 0x49, false) => (state.rows, state.bytes) = ([0; 8], [0; 8]),
        // TILEZERO
        (F2, 0x49, false) => {
            assert!(state.rows[of.reg] > 0, "a tile that was configured");
            state.tiles[of.reg] = [[0; 64]; 16];
        }
        // TILELOADD: what lies outside of the shape becomes zero.
        (F2, 0x4b, true) => {
            let (rows, bytes) = (state.rows[of.reg], state.bytes[of.reg]);
            assert!(rows > 0 && bytes > 0, "a tile that was configured");
            state.tiles[of.reg] = [[0; 64]; 16];
            for (row, to) in state.tiles[of.reg][..rows].iter_mut().enumerate() {
                let from = of.address.wrapping_add(of.stride.wrapping_mul(row as u64)) as *const u8;
                // SAFETY: the caller's contract.
                unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
            }
        }
        // TILESTORED
        (F3, 0x4b, true) => {
            let (rows, bytes) = (state.rows[of.reg], state.bytes[of.reg]);
            assert!(rows > 0 && bytes > 0, "a tile that was configured");
            for (row, from) in state.tiles[of.reg][..rows].iter().enumerate() {
                let to = of.address.wrapping_add(of.stride.wrapping_mul(row as u64)) as *mut u8;
                // SAFETY: the caller's contract.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), bytes) };
            }
        }
        // TDPBUUD, TDPBUSD, TDPBSUD and TDPBSSD
        (NONE | X66 | F3 | F2, 0x5e, false) => {
            let number =
                |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
            let (signed_a, signed_b) = (matches!(of.prefix, F3 | F2), matches!(of.prefix, X66 | F2));
            multiply(of, state, |to, a, b| {
                let sum = a.iter().zip(b).fold(i32::from_le_bytes(*to), |sum, (&a, &b)| {
                    sum.wrapping_add(number(a, signed_a) * number(b, signed_b))
                });
                *to = sum.to_le_bytes();
            });
        }
        // TDPBF16PS. Its roundings differ from these within the tests' bounds.
        (F3, 0x5c, false) => multiply(of, state, |to, a, b| {
            let value = |bytes: &[u8; 4], i: usize| bf16_to_f32(u16::from_le_bytes([bytes[i], bytes[i + 1]]));
            let sum = f32::from_le_bytes(*to);
            let sum = value(a, 0).mul_add(value(b, 0), sum);
            *to = value(a, 2).mul_add(value(b, 2), sum).to_le_bytes();
        }),
        _ => panic!("instruction {:#x} with prefix {}", of.opcode, of.prefix),
    }
}

/// For each number of the sums and four bytes of a row of A: these, and the four bytes of B that belong to them.
fn multiply(of: &Decoded, state: &mut State, mut step: impl FnMut(&mut [u8; 4], &[u8; 4], &[u8; 4])) {
    let (sums, a, b) = (of.reg, of.rm, of.vvvv);
    assert!(sums != a && a != b && sums != b, "a fault: three tiles");
    assert_eq!(state.rows[sums], state.rows[a], "a fault: rows of the sums and of A");
    assert_eq!(state.bytes[sums], state.bytes[b], "a fault: columns of the sums and of B");
    assert_eq!(state.bytes[a], state.rows[b] * 4, "a fault: columns of A and rows of B");
    let (rows, columns) = (state.rows[sums], state.bytes[sums] / 4);
    let (of_a, of_b) = (state.tiles[a], state.tiles[b]);
    let four = |row: &[u8; 64], i: usize| -> [u8; 4] { std::array::from_fn(|j| row[4 * i + j]) };
    for (to, of_a) in state.tiles[sums].iter_mut().zip(of_a).take(rows) {
        for (k, of_b) in of_b.iter().enumerate().take(state.rows[b]) {
            for (column, to) in to.chunks_exact_mut(4).enumerate().take(columns) {
                let to = to.try_into().expect("four bytes");
                step(to, &four(&of_a, k), &four(of_b, column));
            }
        }
    }
}
