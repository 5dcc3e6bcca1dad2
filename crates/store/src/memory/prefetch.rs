//! The processor's prefetch instruction.
#![allow(unsafe_code, reason = "the hint is an intrinsic that takes a raw pointer")]

/// Size of a cache line in bytes on every processor that matters here.
const LINE_BYTES: usize = 64;

/// Prefetches the value into the caches. This is only a hint: it reads nothing and cannot fault. Other crates use it
/// for the tables that a batch looks up.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_bytes(core::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Like [`prefetch()`], for this many bytes from `start` on. The last may lie after the value.
#[inline(always)]
pub(crate) fn prefetch_bytes(start: *const u8, bytes: usize) {
    for line in 0..bytes.div_ceil(LINE_BYTES) {
        prefetch_line(start.wrapping_add(line * LINE_BYTES).cast());
    }
}

/// Like [`prefetch()`], for bytes at any alignment: the last byte may lie in one more line.
#[inline(always)]
pub(crate) fn prefetch_all_lines(bytes: &[u8]) {
    prefetch_bytes(bytes.as_ptr(), bytes.len());
    if let Some(last) = bytes.last() {
        prefetch_line(core::ptr::from_ref(last).cast());
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(address: *const i8) {
    // SAFETY: PREFETCHT0 is a hint that ignores faults, so any address is valid; SSE is part of x86-64.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address) }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn prefetch_line(address: *const i8) {
    // SAFETY: PRFM is a hint that ignores faults, and changes neither registers nor memory.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn prefetch_line(_address: *const i8) {}
