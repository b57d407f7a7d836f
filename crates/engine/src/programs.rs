//! Which programs may be run. Whoever runs the gateway says so in its settings; whoever may change
//! destinations chooses among them, and cannot add to them.
//!
//! A program is looked at when its destination is saved and again at every attempt, and what is run
//! is the path that was judged: all links followed, nothing left that could lead elsewhere.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use surehook_core::destination::exec::is_full_path;

/// The programs that may be run, or the folders in which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<PathBuf>", into = "Vec<PathBuf>")]
pub struct AllowedPrograms(Vec<PathBuf>);

/// Why a program is not run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// None is.
    #[error(
        "this gateway runs no programs; whoever runs it can list them in the setting `allow_exec`"
    )]
    Off,
    /// This one is not.
    #[error("`{}` is not in the list of programs that may be run (setting `allow_exec`)", .0.display())]
    Outside(PathBuf),
    /// It is a link that leads out of the list.
    #[error(
        "`{}` leads to a file that is not in the list of programs that may be run (setting `allow_exec`)", .0.display()
    )]
    LeadsOut(PathBuf),
    /// It cannot be looked at.
    #[error("`{}` cannot be run: {}", .0.display(), .1)]
    Unusable(PathBuf, &'static str),
}

/// An entry of the list that says nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not the full path of a program or folder, without `.` and `..`", .0.display())]
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
    /// The programs and folders in a list. `/` is none: it would allow everything.
    pub fn new(allowed: Vec<PathBuf>) -> Result<Self, AllowedProgramsSpecError> {
        match allowed.iter().find(|path| !is_full_path(path)) {
            Some(path) => Err(AllowedProgramsSpecError(path.clone())),
            None => Ok(Self(allowed)),
        }
    }

    /// The file to run for `program`, all links followed.
    pub fn find(&self, program: &Path) -> Result<PathBuf, ProgramError> {
        if self.0.is_empty() {
            return Err(ProgramError::Off);
        }
        // First by its name alone: what is outside is not even looked at.
        if !is_full_path(program) || !self.0.iter().any(|entry| program.starts_with(entry)) {
            return Err(ProgramError::Outside(program.to_owned()));
        }
        let unusable = |why| ProgramError::Unusable(program.to_owned(), why);
        let file = program.canonicalize().map_err(|error| unusable(why(&error)))?;
        // An entry may itself be a link, such as the current release: whoever wrote it meant that.
        let leads_here =
            |entry: &PathBuf| entry.canonicalize().is_ok_and(|at| file.starts_with(at));
        if !self.0.iter().any(leads_here) {
            return Err(ProgramError::LeadsOut(program.to_owned()));
        }
        is_program(&file).map_err(unusable)?;
        Ok(file)
    }
}

/// Whether a file can be run, and nobody but its owner and group can put another in its place.
fn is_program(file: &Path) -> Result<(), &'static str> {
    const WRITABLE_BY_ALL: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let look = |path: &Path| path.metadata().map_err(|error| why(&error));
    let found = look(file)?;
    let mode = found.permissions().mode();
    if !found.is_file() {
        return Err("it is not a file");
    }
    if mode & 0o111 == 0 {
        return Err("it is not executable");
    }
    if mode & WRITABLE_BY_ALL != 0 {
        return Err("everybody on this machine may write to it");
    }
    for folder in file.ancestors().skip(1) {
        let mode = look(folder)?.permissions().mode();
        if mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            return Err("everybody on this machine may write to a folder on the way to it");
        }
    }
    Ok(())
}

fn why(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&kind) {
        "it is not there"
    } else if kind == io::ErrorKind::PermissionDenied {
        "the gateway may not look at it"
    } else {
        "it cannot be looked at"
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::symlink,
    };

    use super::*;

    fn file(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_is_listed_is_run_wherever_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        file(&at("hooks/act"), 0o755);
        file(&at("hooks/deep/er/act"), 0o755);
        file(&at("hooks/text"), 0o644);
        file(&at("hooks/open"), 0o757);
        file(&at("hooks/shared/act"), 0o755);
        fs::set_permissions(at("hooks/shared"), Permissions::from_mode(0o777)).unwrap();
        file(&at("hooksy/act"), 0o755);
        file(&at("secret/sh"), 0o755);
        file(&at("releases/2/act"), 0o755);
        file(&at("single"), 0o755);
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
            assert_eq!(programs.find(&at(program)), Ok(at(expected)), "case: {program}");
        }
        let unusable = |name: &str, why| ProgramError::Unusable(at(name), why);
        let refused = [
            ("hooks", unusable("hooks", "it is not a file")),
            ("hooks/none", unusable("hooks/none", "it is not there")),
            ("hooks/text", unusable("hooks/text", "it is not executable")),
            ("hooks/open", unusable("hooks/open", "everybody on this machine may write to it")),
            (
                "hooks/shared/act",
                unusable(
                    "hooks/shared/act",
                    "everybody on this machine may write to a folder on the way to it",
                ),
            ),
            ("hooks/sh", ProgramError::LeadsOut(at("hooks/sh"))),
            ("hooks/out/sh", ProgramError::LeadsOut(at("hooks/out/sh"))),
            ("hooksy/act", ProgramError::Outside(at("hooksy/act"))),
            ("secret/sh", ProgramError::Outside(at("secret/sh"))),
            // The same file by another name: what counts is also how it was written.
            ("releases/2/act", ProgramError::Outside(at("releases/2/act"))),
            ("hooks/../secret/sh", ProgramError::Outside(at("hooks/../secret/sh"))),
        ];
        for (program, expected) in refused {
            assert_eq!(programs.find(&at(program)), Err(expected), "case: {program}");
        }
    }

    #[test]
    fn nothing_is_run_unless_something_is_listed() {
        assert_eq!(AllowedPrograms::default().find(Path::new("/bin/sh")), Err(ProgramError::Off));
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
