//! Memory that the kernel reads and writes at known addresses.
//!
//! This module owns the mapping. It returns raw pointers, so that no reference exists while the kernel may write. The
//! owner of a `Shared` knows who holds which element.
#![allow(unsafe_code, reason = "it maps memory, and turns pointers into references where its user vouches")]

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Smallest page of the platforms that Shoal runs on. `mmap` aligns to at least this.
const PAGE_BYTES_MIN: usize = 4096;

/// An array of `T` in its own pages, at an address that never changes.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    base: NonNull<T>,
    count: usize,
    /// Whether the mapping stays when this is dropped.
    leaked: bool,
}

impl<T> Shared<T> {
    /// Maps `count` elements, all bytes zero.
    ///
    /// # Safety
    /// A `T` of zero bytes must be valid.
    pub(crate) unsafe fn zeroed(count: usize) -> io::Result<Self> {
        const {
            assert!(!std::mem::needs_drop::<T>());
            assert!(align_of::<T>() <= PAGE_BYTES_MIN);
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a private anonymous mapping at an address of the kernel's choice overlaps nothing that exists.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), count * size_of::<T>(), protection, flags)? };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Self { base, count, leaked: false })
    }

    /// Returns the address of element `index`. It is valid as long as `self`.
    pub(crate) fn pointer(&self, index: usize) -> *mut T {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: the mapping holds `count` elements, and `index` was just checked against it.
        unsafe { self.base.as_ptr().add(index) }
    }

    /// Returns element `index` for reading.
    ///
    /// # Safety
    /// Neither the kernel nor a `&mut` of this process may write it while the reference lives.
    pub(crate) unsafe fn element(&self, index: usize) -> &T {
        // SAFETY: the element is mapped and valid since `zeroed`. The caller guarantees that nothing writes it.
        unsafe { &*self.pointer(index) }
    }

    /// Returns element `index` for writing.
    ///
    /// # Safety
    /// Neither the kernel nor any other reference of this process may access it while the reference lives.
    #[expect(clippy::mut_from_ref, reason = "elements are lent one by one, and the caller vouches for each")]
    pub(crate) unsafe fn element_mut(&self, index: usize) -> &mut T {
        // SAFETY: the element is mapped and valid since `zeroed`. The caller guarantees that it is unshared.
        unsafe { &mut *self.pointer(index) }
    }

    /// Keeps the mapping forever, even when `self` is dropped, because the kernel may use it.
    pub(crate) const fn leak(&mut self) {
        self.leaked = true;
    }

    /// Lets the mapping end when `self` is dropped.
    ///
    /// # Safety
    /// The kernel must not use the memory any more.
    pub(crate) const unsafe fn reclaim(&mut self) {
        self.leaked = false;
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: base and length are those of the mapping made in `zeroed`. References into it borrow `self`. Owners
        // call `leak` before they pass an address to the kernel.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.count * size_of::<T>()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
