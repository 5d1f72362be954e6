//! A file of the keys that frames of this process are sealed under, to decrypt captures by
//! (`rma-bench decrypt`). Only in builds with the feature `keylog`.
//!
//! Anyone who can read the file can read and forge all that was or will be sealed under those keys.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rma_core::keylog::{self, Log};
use thiserror::Error;

/// The variable that names the file for every process whose build has the feature.
pub const KEYLOG_VARIABLE: &str = "RMA_KEYLOGFILE";

/// The variable that has keys of regions logged as well, if it is `1`.
pub const REGIONS_VARIABLE: &str = "RMA_KEYLOG_REGIONS";

/// The reason why keys are not logged.
#[derive(Debug, Error)]
#[error(
    "the key log {} cannot be written: {source}; give a file of your own, or none", path.display()
)]
pub struct KeyLogError {
    path: PathBuf,
    source: io::Error,
}

/// Logs keys of this process to a file from now on, behind what is in it, and makes it readable for
/// its owner alone. With `regions`, keys of regions as well: every key of every initiator follows
/// from them. A process has one key log: once there is one, this does nothing but warn.
///
/// Call it before hosts are opened, and before grants come in.
///
/// # Errors
/// If the file cannot be opened.
pub fn start(path: &Path, regions: bool) -> Result<(), KeyLogError> {
    let error = |source| KeyLogError { path: path.to_owned(), source };
    let file = open(path).map_err(error)?;
    // In one piece, as other processes may write too. A full disk must stop no engine.
    let write = move |line: core::fmt::Arguments<'_>| {
        let _ = (&file).write_all(format!("{line}\n").as_bytes());
    };
    let _ = keylog::start(Log { write: Box::new(write), regions });
    tracing::warn!(
        path = %path.display(),
        "keys are logged: who reads this file reads and forges all that they seal; switch it off \
         and rotate the keys when you are done"
    );
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Starts what the environment asks for, when a host is opened.
pub(crate) fn start_from_environment() -> Result<(), KeyLogError> {
    let Some(path) = std::env::var_os(KEYLOG_VARIABLE).filter(|it| !it.is_empty()) else {
        return Ok(());
    };
    start(Path::new(&path), std::env::var_os(REGIONS_VARIABLE).is_some_and(|it| it == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostConfig, InlineHost, OpType, Permissions as May, crypto::random_region_key};

    #[test]
    fn keys_are_logged_before_and_after_a_rekey_for_the_owner_of_the_file_alone() {
        let name = format!("rma-keylog-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "# mine\n").unwrap();
        start(&path, true).unwrap();

        let host = InlineHost::open(HostConfig::udp([127, 83, 84, 99])).unwrap();
        let region = host.register(4096, May::READ).unwrap();
        let initiator = [127, 0, 0, 9].into();
        let grant = |pid| host.grant(&region, initiator, rma_core::addr::Pid(pid), OpType::Read);
        let before = grant(77).unwrap();
        let key = random_region_key().unwrap();
        host.rekey(&region, key).unwrap();
        let after = grant(77).unwrap();
        let _ = rma_core::grant::Grant::decode(&before.under(&key).encode()).unwrap();

        let log = std::fs::read_to_string(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, log.lines().next()), (0o600, Some("# mine")));
        let region = region.id().to_bits();
        let count = |line: &str| log.lines().filter(|it| *it == line).count();
        for (grant, times) in [(&before, 1), (&after, 3)] {
            let line = format!(
                "1RMA_KD 127.0.0.9 127.83.84.99 77 1 {region} {}",
                keylog::Hex(grant.key.expose())
            );
            assert_eq!(count(&line), times, "made, made beforehand, and taken in");
        }
        let line = format!("1RMA_KR 127.83.84.99 {region} {}", keylog::Hex(key.expose()));
        assert_eq!(count(&line), 1);
    }
}
