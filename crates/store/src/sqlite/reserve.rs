//! Disk space that is kept for finishing what was accepted: a file that is given up when the disk is
//! full.
//!
//! From then on nothing new is accepted, and the freed space is used to deliver, to record results, to
//! prune and to start again. The file is created again as soon as twice its size is free.

use std::{
    fs::{File, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};

const FILE: &str = "reserve";
/// As much as the log may hold: it can then be copied into the database on a full disk.
const BYTES_MAX: u64 = 64 << 20;
/// Share of a small disk.
const DISK_DIVISOR: u64 = 20;
/// With less than this share of the reserve free, a start already needs the reserve.
const START_DIVISOR: u64 = 4;
const LARGEST_PAGE: u64 = 8192;

#[derive(Debug)]
pub(super) struct SpaceReserve {
    /// `None` if the file system cannot reserve space.
    file: Option<File>,
    bytes: u64,
    is_released: bool,
}

impl SpaceReserve {
    /// Creates the reserve, or releases it if the disk is full.
    pub(super) fn open(folder: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let opened = options.open(folder.join(FILE)).and_then(|file| {
            // Regardless of the umask.
            file.set_permissions(Permissions::from_mode(0o600))?;
            Ok(file)
        });
        let mut reserve = match opened {
            Ok(file) => Self { file: Some(file), bytes: 0, is_released: true },
            Err(error) => Self::unavailable(&error),
        };
        reserve.set_size();
        let is_held = reserve.allocated_bytes() >= reserve.bytes;
        if is_held && reserve.free_bytes() >= reserve.bytes / START_DIVISOR {
            reserve.is_released = false;
        } else if is_held {
            reserve.is_released = false;
            reserve.release();
        } else {
            reserve.restore();
        }
        reserve
    }

    fn unavailable(error: &dyn std::fmt::Display) -> Self {
        tracing::warn!(%error, "no disk space can be reserved for finishing deliveries when the disk is full");
        Self { file: None, bytes: 0, is_released: false }
    }

    /// Whether the disk was full and the reserve is in use.
    pub(super) fn is_released(&self) -> bool {
        self.is_released
    }

    /// Pages of the log that fit into the reserve twice; `None` without a reserve.
    pub(super) fn log_pages_max(&self) -> Option<usize> {
        self.file.as_ref().and(usize::try_from(self.bytes / (2 * LARGEST_PAGE)).ok())
    }

    /// Whether a log of this many pages could soon not be copied into the database, even with the
    /// reserve: copying may need as much space again.
    pub(super) fn must_shorten_log(&self, pages: usize) -> bool {
        self.log_pages_max().is_some_and(|pages_max| pages > pages_max)
            && self.free_bytes() < self.bytes * 2
    }

    /// Sets the size of the reserve to its share of the disk.
    fn set_size(&mut self) {
        let total = self.disk_stats().map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        self.bytes = (total / DISK_DIVISOR).min(BYTES_MAX);
    }

    fn disk_stats(&self) -> Option<rustix::fs::StatVfs> {
        self.file.as_ref().and_then(|file| fstatvfs(file).ok())
    }

    fn free_bytes(&self) -> u64 {
        self.disk_stats().map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn allocated_bytes(&self) -> u64 {
        let file = self.file.as_ref().and_then(|file| file.metadata().ok());
        file.map_or(0, |meta| meta.blocks() * 512)
    }

    /// Frees the space; returns whether it was still held.
    pub(super) fn release(&mut self) -> bool {
        if self.is_released {
            return false;
        }
        let Some(file) = &self.file else { return false };
        if let Err(error) = file.set_len(0) {
            tracing::warn!(%error, "the disk is full, and the reserved space could not be released");
            return false;
        }
        self.is_released = true;
        true
    }

    /// Takes the space again if there is enough; returns whether nothing is left to restore.
    pub(super) fn restore(&mut self) -> bool {
        if !self.is_released {
            return true;
        }
        let Some(file) = &self.file else { return true };
        if self.free_bytes() < self.bytes * 2 {
            return false;
        }
        match fallocate(file, FallocateFlags::empty(), 0, self.bytes.max(1)) {
            Ok(()) => self.is_released = false,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::FBIG) => {
                *self = Self::unavailable(&io::Error::from(Errno::OPNOTSUPP));
            }
            Err(error) => {
                tracing::debug!(%error, "the disk has too little free space for the reserve");
                let _ignored = file.set_len(0);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_takes_space_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let mut reserve = SpaceReserve::open(folder.path());
        if reserve.file.is_none() {
            return;
        }
        assert!(!reserve.is_released() && reserve.allocated_bytes() >= reserve.bytes);
        assert!(reserve.release() && reserve.is_released());
        assert_eq!(reserve.allocated_bytes(), 0);
        assert!(!reserve.release(), "there is nothing more to release");
        assert!(reserve.restore() && !reserve.is_released());
        drop(reserve);
        assert!(!SpaceReserve::open(folder.path()).is_released());
    }
}
