//! The programs that destinations may run, from the server's settings. Users who may change destinations
//! choose among them and cannot add to them.
//!
//! A program is checked when its destination is saved and again at every attempt, and the checked path is
//! run: all symbolic links resolved.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use surehook_core::destination::exec::is_full_path;

/// Programs, or folders with programs, that may be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<PathBuf>", into = "Vec<PathBuf>")]
pub struct AllowedPrograms(Vec<PathBuf>);

/// Why a program may not be run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error(
        "this gateway runs no programs; an operator can allow them in the setting `allow_exec`"
    )]
    Off,
    #[error("`{}` is not an allowed program (setting `allow_exec`)", .0.display())]
    Outside(PathBuf),
    /// A symbolic link that leads out of the allowed paths.
    #[error(
        "`{}` is a link to a program that is not allowed (setting `allow_exec`)", .0.display()
    )]
    LeadsOut(PathBuf),
    #[error("`{}` cannot be run: {}", .0.display(), .1)]
    Unusable(PathBuf, &'static str),
}

/// An invalid entry of the list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an absolute path of a program or folder without `.` and `..`", .0.display())]
pub struct AllowedProgramsSpecError(PathBuf);

impl TryFrom<Vec<PathBuf>> for AllowedPrograms {
    type Error = AllowedProgramsSpecError;

    fn try_from(allowed: Vec<PathBuf>) -> Result<Self, AllowedProgramsSpecError> {
        Self::new(allowed)
    }
}

impl From<AllowedPrograms> for Vec<PathBuf> {
    fn from(AllowedPrograms(allowed): AllowedPrograms) -> Self {
        allowed
    }
}

impl AllowedPrograms {
    /// Checks the entries. `/` is refused: it would allow everything.
    pub fn new(allowed: Vec<PathBuf>) -> Result<Self, AllowedProgramsSpecError> {
        match allowed.iter().find(|path| !is_full_path(path)) {
            Some(path) => Err(AllowedProgramsSpecError(path.clone())),
            None => Ok(Self(allowed)),
        }
    }

    /// The file to run for `program`, with all symbolic links resolved.
    pub fn resolve(&self, program: &Path) -> Result<PathBuf, ProgramError> {
        if self.0.is_empty() {
            return Err(ProgramError::Off);
        }
        // First by its path alone: files outside are not even read.
        if !is_full_path(program) || !self.0.iter().any(|entry| program.starts_with(entry)) {
            return Err(ProgramError::Outside(program.to_owned()));
        }
        let unusable = |reason| ProgramError::Unusable(program.to_owned(), reason);
        let file = program.canonicalize().map_err(|error| unusable(describe_io_error(&error)))?;
        // An entry may itself be a link on purpose, such as the current release.
        let contains_file =
            |entry: &PathBuf| entry.canonicalize().is_ok_and(|at| file.starts_with(at));
        if !self.0.iter().any(contains_file) {
            return Err(ProgramError::LeadsOut(program.to_owned()));
        }
        check_executable(&file).map_err(unusable)?;
        Ok(file)
    }
}

/// Checks that a file is executable, and that only its owner and group can replace it.
fn check_executable(file: &Path) -> Result<(), &'static str> {
    const WRITABLE_BY_ALL: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let metadata = |path: &Path| path.metadata().map_err(|error| describe_io_error(&error));
    let file_metadata = metadata(file)?;
    let mode = file_metadata.permissions().mode();
    if !file_metadata.is_file() {
        return Err("it is not a file");
    }
    if mode & 0o111 == 0 {
        return Err("it is not executable");
    }
    if mode & WRITABLE_BY_ALL != 0 {
        return Err("every user of this machine may write to it");
    }
    for folder in file.ancestors().skip(1) {
        let mode = metadata(folder)?.permissions().mode();
        if mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            return Err("every user of this machine may write to one of its parent folders");
        }
    }
    Ok(())
}

fn describe_io_error(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&kind) {
        "it does not exist"
    } else if kind == io::ErrorKind::PermissionDenied {
        "the gateway has no permission to read it"
    } else {
        "it cannot be read"
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::symlink,
    };

    use super::*;

    fn write_program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_listed_programs_are_allowed_wherever_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        write_program(&at("hooks/act"), 0o755);
        write_program(&at("hooks/deep/er/act"), 0o755);
        write_program(&at("hooks/text"), 0o644);
        write_program(&at("hooks/open"), 0o757);
        write_program(&at("hooks/shared/act"), 0o755);
        fs::set_permissions(at("hooks/shared"), Permissions::from_mode(0o777)).unwrap();
        write_program(&at("hooksy/act"), 0o755);
        write_program(&at("secret/sh"), 0o755);
        write_program(&at("releases/2/act"), 0o755);
        write_program(&at("single"), 0o755);
        symlink(at("hooks/act"), at("hooks/same")).unwrap();
        symlink(at("secret/sh"), at("hooks/sh")).unwrap();
        symlink(at("secret"), at("hooks/out")).unwrap();
        symlink(at("releases/2"), at("current")).unwrap();
        let listed = ["hooks", "single", "current", "not-there"].map(at);
        let programs = AllowedPrograms::new(listed.to_vec()).unwrap();

        let allowed = [
            ("hooks/act", "hooks/act"),
            ("hooks/deep/er/act", "hooks/deep/er/act"),
            ("hooks/same", "hooks/act"),
            ("single", "single"),
            ("current/act", "releases/2/act"),
        ];
        for (program, expected) in allowed {
            assert_eq!(programs.resolve(&at(program)), Ok(at(expected)), "case: {program}");
        }
        let unusable = |name: &str, reason| ProgramError::Unusable(at(name), reason);
        let refused = [
            ("hooks", unusable("hooks", "it is not a file")),
            ("hooks/none", unusable("hooks/none", "it does not exist")),
            ("hooks/text", unusable("hooks/text", "it is not executable")),
            ("hooks/open", unusable("hooks/open", "every user of this machine may write to it")),
            (
                "hooks/shared/act",
                unusable(
                    "hooks/shared/act",
                    "every user of this machine may write to one of its parent folders",
                ),
            ),
            ("hooks/sh", ProgramError::LeadsOut(at("hooks/sh"))),
            ("hooks/out/sh", ProgramError::LeadsOut(at("hooks/out/sh"))),
            ("hooksy/act", ProgramError::Outside(at("hooksy/act"))),
            ("secret/sh", ProgramError::Outside(at("secret/sh"))),
            // The same file by another path: the path itself must be listed, too.
            ("releases/2/act", ProgramError::Outside(at("releases/2/act"))),
            ("hooks/../secret/sh", ProgramError::Outside(at("hooks/../secret/sh"))),
        ];
        for (program, expected) in refused {
            assert_eq!(programs.resolve(&at(program)), Err(expected), "case: {program}");
        }
    }

    #[test]
    fn empty_list_allows_no_program() {
        assert_eq!(
            AllowedPrograms::default().resolve(Path::new("/bin/sh")),
            Err(ProgramError::Off)
        );
        for path in ["", "/", "hooks", "./hooks", "/opt/../bin", "/opt/."] {
            let list = vec![PathBuf::from("/opt/hooks"), PathBuf::from(path)];
            assert_eq!(
                AllowedPrograms::new(list),
                Err(AllowedProgramsSpecError(path.into())),
                "case: {path}"
            );
        }
    }
}
