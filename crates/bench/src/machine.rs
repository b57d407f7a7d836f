//! Facts about the machine that are needed to interpret the numbers.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// The machine on which a run took place.
#[derive(Clone, Debug, Serialize)]
pub struct MachineInfo {
    pub cores: usize,
    /// Model name from `/proc/cpuinfo`.
    pub processor: Option<String>,
    /// File system of the gateway's data folder. On `tmpfs` an fsync is free, so the rates say nothing
    /// about a disk.
    pub filesystem: Option<String>,
    /// Share of all cores used by other processes during the run. A high share makes every number
    /// worse, and not all of them equally.
    pub other_processes_cpu_share: Option<f64>,
}

impl MachineInfo {
    /// Reads the facts; `folder` is where the data will be.
    pub(crate) fn read(folder: &Path) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor(&read("/proc/cpuinfo")),
            filesystem: filesystem(&read("/proc/self/mounts"), &folder),
            other_processes_cpu_share: None,
        }
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

fn filesystem(mounts: &str, folder: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((Path::new(fields.next()?), fields.next()?))
        })
        .filter(|(mount, _)| folder.starts_with(mount))
        // The later of two mounts on one path hides the earlier; `max_by_key` keeps the last.
        .max_by_key(|(mount, _)| mount.as_os_str().len())
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_that_of_the_nearest_mount() {
        let mounts = "overlay / overlay rw 0 0\n/dev/vda /tmp ext4 rw 0 0\n\
                      tmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmpfiles xfs rw 0 0\n";
        let kind = |folder: &str| filesystem(mounts, Path::new(folder));
        assert_eq!(kind("/tmp/x").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/tmpfiles/x").as_deref(), Some("xfs"));
        assert_eq!(kind("/var").as_deref(), Some("overlay"));
    }

    #[test]
    fn processor_name_is_read_from_cpuinfo() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Fast One\nmodel name\t: Fast One\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("Fast One"));
        assert_eq!(processor(""), None);
    }
}
