//! Grants in a file: how they travel from `serve` to `read-lat` and `write-lat` until there is a key service.
//!
//! One file for one process and one region, with a key for each type of op that is granted: one thing to carry over.
//! The file holds keys, so it is made for its owner alone (mode 0600), and one that others may read or
//! write is refused. Carry it to the other machine with something that keeps secrets, such as `scp -p`.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rma_xdp::{DerivedRegionKey, Grant, HostAddr, OpType, Pid, RegionId};
use serde::{Deserialize, Serialize};

use crate::grants::Grants;

/// The mode of a grant file: read and write for its owner.
const MODE: u32 = 0o600;

/// A file longer than this is no grant.
const LEN_MAX: u64 = 64 << 10;

/// What a grant file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantFile {
    /// The grants.
    pub grants: Grants,
    /// The UDP port of the responder's deployment.
    pub port: u16,
    /// The seed of the pattern that the region holds.
    pub seed: u64,
}

/// Why a grant file could not be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantFileError {
    /// The file system refused.
    #[error("{what} grant file {path}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Others may read or write the file.
    #[error(
        "grant file {path} has mode {mode:04o}, so others may read or change the key in it; run: chmod 600 {path}"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not a regular file.
    #[error("grant file {path} is not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is too long.
    #[error("grant file {path} has {len} bytes; a grant has fewer than {LEN_MAX}")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// It is not a grant.
    #[error("grant file {path} is not a grant: {source}; make a new one with rma-bench serve")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A field has a value that means nothing.
    #[error("grant file {path}: `{field}` is {value:?}, which is not {expected}")]
    Field {
        /// The file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    responder: String,
    port: u16,
    region: u32,
    region_len: u64,
    initiator: String,
    pid: u32,
    /// By type of op.
    keys: BTreeMap<String, String>,
    seed: u64,
}

impl GrantFile {
    /// Writes the file anew: under another name first, so that nobody ever sees half of it.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn save(&self, path: &Path) -> Result<(), GrantFileError> {
        let grant = self.grants.any();
        let hex = |grant: Grant| {
            let digits = grant.key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
            (grant.op_type.name().to_owned(), digits)
        };
        let text = Text {
            responder: grant.responder.to_string(),
            port: self.port,
            region: grant.region.to_bits(),
            region_len: grant.region_len,
            initiator: grant.initiator.to_string(),
            pid: grant.pid.0,
            keys: self.grants.all().map(hex).collect(),
            seed: self.seed,
        };
        let io = |what| move |source| GrantFileError::Io { what, path: path.to_owned(), source };
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(name);
        let write = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(MODE).open(&new)?;
            serde_json::to_writer_pretty(&mut file, &text)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error| {
            // Whatever is left of the new file is of no use to anybody.
            let _ = fs::remove_file(&new);
            io("writing")(error)
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, others may read it too, or it is not a grant.
    pub fn load(path: &Path) -> Result<Self, GrantFileError> {
        let io = |source| GrantFileError::Io { what: "reading", path: path.to_owned(), source };
        // Nonblocking: opening a pipe would wait for somebody to write.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let mut file = options.read(true).custom_flags(flags).open(path).map_err(io)?;
        // The open file, not the path: nobody can exchange it in between.
        let metadata = file.metadata().map_err(io)?;
        let path = path.to_owned();
        if !metadata.is_file() {
            return Err(GrantFileError::NotAFile { path });
        }
        let (mode, len) = (metadata.permissions().mode() & 0o7777, metadata.len());
        if mode & 0o077 != 0 {
            return Err(GrantFileError::Mode { path, mode });
        }
        if len > LEN_MAX {
            return Err(GrantFileError::TooLong { path, len });
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io_at(&path))?;
        let text: Text = match serde_json::from_str(&text) {
            Ok(text) => text,
            Err(source) => return Err(GrantFileError::Syntax { path, source }),
        };
        let field = |field, value: &str, expected| GrantFileError::Field {
            path: path.clone(),
            field,
            value: value.to_owned(),
            expected,
        };
        let address = |name, value: &str| {
            value.parse::<HostAddr>().ok().ok_or_else(|| field(name, value, "an IP address"))
        };
        let (responder, initiator) =
            (address("responder", &text.responder)?, address("initiator", &text.initiator)?);
        let mut grants: Option<Grants> = None;
        for (name, key) in &text.keys {
            let op_type = OpType::ALL.into_iter().find(|op_type| op_type.name() == name);
            let op_type = op_type
                .ok_or_else(|| field("keys", name, "a type of op: one of READ, WRITE and Rekey"))?;
            // The value is not shown: it is, or was meant to be, a secret.
            let key = unhex(key).ok_or_else(|| field("keys", "(secret)", "32 hex digits"))?;
            let key = DerivedRegionKey::from_bytes(key);
            grants = Some(match grants {
                Some(grants) => grants.with(op_type, key),
                None => Grants::new(Grant {
                    responder,
                    region: RegionId::from_bits(text.region),
                    region_len: text.region_len,
                    initiator,
                    pid: Pid(text.pid),
                    op_type,
                    key,
                }),
            });
        }
        let grants = grants.ok_or_else(|| field("keys", "empty", "a key for a type of op"))?;
        Ok(Self { grants, port: text.port, seed: text.seed })
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> GrantFileError {
    let path = path.to_owned();
    move |source| GrantFileError::Io { what: "reading", path, source }
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> GrantFile {
        let grant = Grant {
            responder: "192.0.2.2".parse().unwrap(),
            region: RegionId::from_bits(5),
            region_len: 4096,
            initiator: "192.0.2.1".parse().unwrap(),
            pid: Pid(7),
            op_type: OpType::Read,
            key: DerivedRegionKey::from_bytes(*b"0123456789abcdef"),
        };
        let write = DerivedRegionKey::from_bytes(*b"fedcba9876543210");
        GrantFile { grants: Grants::new(grant).with(OpType::Write, write), port: 10_472, seed: 3 }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rma-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_grant_round_trips_through_a_file_for_its_owner_alone() {
        let folder = Folder::new("grant-round-trip");
        let path = folder.0.join("grant.json");
        example().save(&path).unwrap();
        example().save(&path).unwrap();
        assert!(!example().grants.has(OpType::Rekey));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        assert_eq!(GrantFile::load(&path).unwrap(), example());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn files_that_are_no_grant_are_refused_with_the_reason() {
        let folder = Folder::new("grant-refused");
        let path = folder.0.join("grant.json");
        let refused = || GrantFile::load(&path).unwrap_err().to_string();
        assert!(refused().contains("No such file"), "{}", refused());

        example().save(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused().contains("0640") && refused().contains("chmod 600"), "{}", refused());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        let good = fs::read_to_string(&path).unwrap();
        for (from, to, names) in [
            ("\"READ\"", "\"PEEK\"", "PEEK"),
            ("192.0.2.2", "192.0.2", "responder"),
            ("30313233", "3031323", "keys"),
            ("30313233", "3031323g", "keys"),
            ("\"seed\"", "\"sead\"", "unknown field"),
            ("{", "", "not a grant"),
            ("10472", "1047200", "not a grant"),
        ] {
            fs::write(&path, good.replacen(from, to, 1)).unwrap();
            assert!(refused().contains(names), "{}", refused());
            assert!(!refused().contains("3031323"), "the key is not shown: {}", refused());
        }
        let start = good.find("\"READ\"").unwrap();
        let end = good.find('}').unwrap();
        fs::write(&path, [&good[..start], &good[end..]].concat()).unwrap();
        assert!(refused().contains("a key for a type of op"), "{}", refused());
        fs::write(&path, vec![b' '; LEN_MAX as usize + 1]).unwrap();
        assert!(refused().contains("65537 bytes"), "{}", refused());
    }
}
