//! Options of the C library's allocator, for a program that holds many large bodies for a short time.

/// Gives every block of 128 KiB or more a mapping of its own, which returns to the system when it is
/// freed. Call it before the first thread starts.
///
/// glibc begins with this limit, but raises it to the size of each larger block that is freed, up to
/// 32 MiB. From then on bodies come from the heap, where one small block behind them keeps their memory:
/// during an attack with large bodies the process grew far beyond the bodies that it held.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "mallopt has no safe interface")]
pub fn map_large_blocks() {
    // SAFETY: no pointers are passed, and an unknown option or value only makes the call return 0.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// Does nothing: musl always gives large blocks a mapping of their own, and other C libraries have no such
/// limit.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn map_large_blocks() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// The number of blocks with a mapping of their own.
    #[expect(unsafe_code, reason = "mallinfo2 has no safe interface")]
    fn count_mapped_blocks() -> usize {
        // SAFETY: takes nothing and returns numbers.
        unsafe { libc::mallinfo2() }.hblks
    }

    #[test]
    fn large_block_is_mapped_also_after_a_larger_one_was_freed() {
        map_large_blocks();
        drop(black_box(vec![1_u8; 8 << 20]));

        let before = count_mapped_blocks();
        let block = black_box(vec![1_u8; 1 << 20]);
        assert_eq!(count_mapped_blocks(), before + 1);
        drop(block);
        assert_eq!(count_mapped_blocks(), before);
    }
}
