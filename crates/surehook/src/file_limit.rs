//! The limit of open files: raised at start, and divided among incoming connections, deliveries and the
//! gateway's own files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit is not raised further: more files are never needed, and child programs inherit the limit. Some
/// close every possible descriptor when they start, which takes long with a high limit.
const FILES_MAX: u64 = 1 << 20;
/// Files of the gateway itself: the database and its readers, lookups, programs, standard streams. A
/// sixteenth of the limit is reserved on top.
const OWN_FILES: u64 = 64;
/// Default of `limits.connections_max`, if there are enough files.
const CONNECTIONS_MAX: u64 = 10_000;

/// How the files of the process are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileBudget {
    /// Incoming connections.
    pub(crate) connections: usize,
    /// Sockets and pipes of deliveries.
    pub(crate) deliveries: usize,
}

impl FileBudget {
    /// Divides `files`. Half of them are for deliveries, unless `limits.connections_max` is set: that is
    /// used as it is, as long as a few are left for deliveries.
    pub(crate) fn new(files: u64, connections_max: Option<usize>) -> Self {
        let usable = files.saturating_sub(OWN_FILES + files / 16).max(2);
        let connections = match connections_max {
            Some(max) => (max as u64).min(usable - (usable / 16).max(1)),
            None => (usable / 2).min(CONNECTIONS_MAX),
        };
        let number = |files| usize::try_from(files).unwrap_or(usize::MAX);
        Self { connections: number(connections), deliveries: number(usable - connections) }
    }
}

/// Raises the soft limit of open files to the hard one, and returns it.
pub(crate) fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(FILES_MAX);
    let hard = limit.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    if hard <= soft {
        return soft;
    }
    let raised = Rlimit { current: Some(hard), maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => hard,
        Err(error) => {
            tracing::warn!(%error, "could not raise the limit of open files from {soft} to {hard}");
            soft
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_with_a_reserve_for_deliveries_and_the_gateway_itself() {
        let cases = [
            ("usual soft limit", 1024, None, (448, 448)),
            ("plenty", 1 << 20, None, (10_000, 972_976)),
            ("setting that fits", 1024, Some(800), (800, 96)),
            ("setting that fits exactly", 1024, Some(840), (840, 56)),
            ("setting beyond the limit", 1024, Some(10_000), (840, 56)),
            ("small setting", 1 << 20, Some(7), (7, 982_969)),
            ("very few files", 16, None, (1, 1)),
            ("very few files and a setting", 16, Some(100), (1, 1)),
        ];
        for (name, files, connections_max, (connections, deliveries)) in cases {
            let budget = FileBudget::new(files, connections_max);
            assert_eq!(budget, FileBudget { connections, deliveries }, "case: {name}");
            assert!(
                files < OWN_FILES || ((connections + deliveries) as u64) < files,
                "case: {name}"
            );
        }
    }
}
