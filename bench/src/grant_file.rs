//! Grants in a file: how they travel from `serve` to `read-lat` and `write-lat` until there is a
//! key service.
//!
//! One file for one process and one region, with a key for each type of op that is granted: one
//! thing to carry over. The file holds keys, so it is made for its owner alone (mode 0600), and one
//! that others may read or write, or that is another user's, is refused. Carry it to the other
//! machine with something that keeps secrets, such as `scp -p`.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self, Metadata, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rma_xdp::{
    Grant, HostAddr, OpType, Pid,
    crypto::DerivedRegionKey,
    memory::{RegionId, Shortage},
};
use serde::{Deserialize, Serialize};

use crate::grants::Grants;

/// The mode of a grant file: read and write for its owner.
const MODE: u32 = 0o600;

/// A file longer than this is no grant.
const LEN_MAX: u64 = 64 << 10;

/// The content of a grant file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantFile {
    /// The grants that the file gives to its holder.
    pub grants: Grants,
    /// The UDP port of the responder's deployment.
    pub port: u16,
    /// The seed of the pattern that the region holds.
    pub seed: u64,
}

/// An error in writing or using a grant file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantFileError {
    /// The file system refused.
    #[error("{what} grant file {path}: {source}; {}", next_step(what, source))]
    Io {
        /// The action that failed.
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
    /// It is another user's, who may write to it.
    #[error(
        "grant file {path} belongs to user {owner}, who may change the key in it, and this program runs as user {user}; \
         run it as user {owner}, or, if you trust what is in it, run: sudo chown {user} {path}"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// The number of the user that this program runs as.
        user: u32,
    },
    /// It is not a regular file.
    #[error(
        "grant file {path} is {kind}, not a regular file; give the name of a file of its own with --grant"
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The kind of thing that it is.
        kind: &'static str,
    },
    /// It is too long.
    #[error(
        "grant file {path} has {len} bytes, and a grant has fewer than {LEN_MAX}: it is something else; \
         give the file that rma-bench serve wrote with --grant"
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        len: u64,
    },
    /// It has no content.
    #[error(
        "grant file {path} is empty; carry it over again, or make a new one with rma-bench serve"
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is not text.
    #[error(
        "grant file {path} is not a grant: byte {at} is {byte:#04x}, which is not UTF-8; \
         carry it over again, or make a new one with rma-bench serve"
    )]
    NotText {
        /// The file.
        path: PathBuf,
        /// The place of the first byte that cannot be text, counted from 0.
        at: usize,
        /// That byte.
        byte: u8,
    },
    /// Something else is where a grant should be written.
    #[error(
        "{path} is there and will not be replaced, as it is not a grant file ({why}); \
         give another name with --grant, or remove it"
    )]
    NotReplaced {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// It is not a grant.
    #[error("grant file {path} is not a grant: {source}; make a new one with rma-bench serve")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The fault, and its place.
        source: serde_json::Error,
    },
    /// A field has a value that means nothing.
    #[error(
        "grant file {path}: `{field}` is {value:?}, which is not {expected}; make a new one with rma-bench serve"
    )]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The value that it should have.
        expected: &'static str,
    },
}

impl GrantFileError {
    /// Returns the fault, without the file and the next step.
    fn in_short(&self) -> String {
        match self {
            Self::Io { source, .. } => source.to_string(),
            Self::NotAFile { kind, .. } => (*kind).to_owned(),
            Self::TooLong { len, .. } => format!("it has {len} bytes"),
            Self::NotText { at, byte, .. } => format!("byte {at} is {byte:#04x}"),
            Self::Syntax { source, .. } => source.to_string(),
            Self::Field { field, value, .. } => format!("`{field}` is {value:?}"),
            other => other.to_string(),
        }
    }
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
    /// Returns the grant file that [`GrantFile::save`] would replace: `None` if nothing is there,
    /// or a file without content.
    ///
    /// # Errors
    /// If something is there that is not a grant.
    pub fn replaceable(path: &Path) -> Result<Option<Self>, GrantFileError> {
        match Self::read(path) {
            Ok(found) => Ok(found),
            Err(GrantFileError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(None)
            }
            Err(GrantFileError::Io { what, path, source }) if Shortage::of(&source).is_some() => {
                Err(GrantFileError::Io { what, path, source })
            }
            Err(why) => {
                Err(GrantFileError::NotReplaced { path: path.to_owned(), why: why.in_short() })
            }
        }
    }

    /// Writes the file anew: under another name first, so that nobody ever sees half of it. Returns
    /// the grant that it has replaced, if there was one: a server's own of an earlier life, mostly.
    ///
    /// # Errors
    /// If the file system refuses, or something is there that is not a grant: it is left alone.
    pub fn save(&self, path: &Path) -> Result<Option<Self>, GrantFileError> {
        let replaced = Self::replaceable(path)?;
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
        })?;
        Ok(replaced)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, it is not a grant, others may read it too, or it is another user's.
    pub fn load(path: &Path) -> Result<Self, GrantFileError> {
        let path_of = || path.to_owned();
        let (found, metadata) = Self::read_with(path)?;
        let found = found.ok_or_else(|| GrantFileError::Empty { path: path_of() })?;
        // Last: what to do about its mode is of use only for what is a grant.
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(GrantFileError::Mode { path: path_of(), mode });
        }
        let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
        // Root may write to any file.
        if owner != user && owner != 0 {
            return Err(GrantFileError::Owner { path: path_of(), owner, user });
        }
        Ok(found)
    }

    /// Reads a file; `None` if it is empty.
    fn read(path: &Path) -> Result<Option<Self>, GrantFileError> {
        Ok(Self::read_with(path)?.0)
    }

    /// Reads a file, and tells whose it is.
    fn read_with(path: &Path) -> Result<(Option<Self>, Metadata), GrantFileError> {
        let io = |source| GrantFileError::Io { what: "reading", path: path.to_owned(), source };
        // Nonblocking: opening a pipe would wait for somebody to write.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(path).map_err(io)?;
        // The open file, not the path: nobody can exchange it in between.
        let metadata = file.metadata().map_err(io)?;
        let path = path.to_owned();
        if !metadata.is_file() {
            let kind = if metadata.is_dir() { "a directory" } else { "a device or a pipe" };
            return Err(GrantFileError::NotAFile { path, kind });
        }
        let len = metadata.len();
        if len > LEN_MAX {
            return Err(GrantFileError::TooLong { path, len });
        }
        let mut bytes = Vec::new();
        file.take(LEN_MAX).read_to_end(&mut bytes).map_err(io_at(&path))?;
        if bytes.is_empty() {
            return Ok((None, metadata));
        }
        let text = core::str::from_utf8(&bytes).map_err(|error| {
            let at = error.valid_up_to();
            GrantFileError::NotText { path: path.clone(), at, byte: bytes[at] }
        })?;
        let text: Text = match serde_json::from_str(text) {
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
            let op_type = op_type.ok_or_else(|| field("keys", name, "a type of op, as READ"))?;
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
        Ok((Some(Self { grants, port: text.port, seed: text.seed }), metadata))
    }
}

/// Returns the next step after an error of the file system.
fn next_step(what: &str, error: &io::Error) -> Cow<'static, str> {
    if let Some(shortage) = Shortage::of(error) {
        return shortage.to_string().into();
    }
    let step = match (what, error.kind()) {
        ("reading", ErrorKind::NotFound) => {
            "carry it over from where rma-bench serve wrote it, or give its name with --grant-file; or type the line that it printed"
        }
        ("reading", ErrorKind::PermissionDenied) => {
            "run as its owner (what sudo wrote is root's), or give it to this user with chown"
        }
        ("writing", ErrorKind::NotFound) => "make its directory, or give another with --grant",
        ("writing", _) => "give a place that this user may write to with --grant",
        _ => "make a new one with rma-bench serve, or give another with --grant",
    };
    step.into()
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
    use std::os::unix::fs::{PermissionsExt, chown};

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
        assert_eq!(example().save(&path).unwrap(), None);
        assert_eq!(example().save(&path).unwrap(), Some(example()), "what it has replaced");
        assert!(!example().grants.has(OpType::Rekey));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        assert_eq!(GrantFile::load(&path).unwrap(), example());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_that_is_no_grant_is_neither_replaced_nor_changed() {
        let folder = Folder::new("grant-kept");
        let path = folder.0.join("letter.txt");
        for content in [b"Dear all,".as_slice(), b"{}", b"\xff\xfe", &[b' '; LEN_MAX as usize + 1]]
        {
            fs::write(&path, content).unwrap();
            let error = example().save(&path).unwrap_err().to_string();
            assert!(
                error.contains("will not be replaced") && error.contains("letter.txt"),
                "{error}"
            );
            assert!(error.contains("another name with --grant"), "{error}");
            assert!(!error.contains("make a new one"), "one next step, and the right one: {error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        let error = example().save(&folder.0).unwrap_err().to_string();
        assert!(error.contains("a directory"), "{error}");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing else is left");
        // Nothing is lost with an empty file, such as mktemp makes; nor with a grant that others
        // may read.
        fs::write(&path, b"").unwrap();
        assert_eq!(example().save(&path).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(example().save(&path).unwrap(), Some(example()));
        assert_eq!(GrantFile::load(&path).unwrap(), example());
    }

    #[test]
    fn an_unreadable_file_is_named_with_the_next_step() {
        let folder = Folder::new("grant-unreadable");
        let path = folder.0.join("grant.json");
        let refused = |path: &Path| GrantFile::load(path).unwrap_err().to_string();
        let error = refused(&path);
        assert!(error.contains("grant.json") && error.contains("carry it over"), "{error}");
        let error = refused(&folder.0);
        assert!(error.contains("is a directory") && error.contains("--grant"), "{error}");
        example().save(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[5] = 0xc0;
        fs::write(&path, &bytes).unwrap();
        let error = refused(&path);
        assert!(error.contains("byte 5 is 0xc0") && error.contains("make a new one"), "{error}");
        fs::write(&path, b"").unwrap();
        let error = refused(&path);
        assert!(error.contains("is empty") && error.contains("make a new one"), "{error}");
        let denied = GrantFileError::Io {
            what: "reading",
            path: path.clone(),
            source: io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error()),
        };
        assert!(denied.to_string().contains("run as its owner"), "{denied}");
        let error = example().save(&folder.0.join("none").join("grant.json")).unwrap_err();
        assert!(error.to_string().contains("make its directory"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_grant_is_refused_before_its_mode_is_judged() {
        let folder = Folder::new("grant-program");
        let path = folder.0.join("program");
        for content in [b"\x7fELF\x02".as_slice(), b"#!/bin/sh\n", &[b' '; LEN_MAX as usize + 1]] {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let error = GrantFile::load(&path).unwrap_err().to_string();
            assert!(!error.contains("chmod"), "{error}");
            assert!(error.contains("a grant"), "{error}");
        }
        let error = GrantFile::load(Path::new("/bin/ls")).unwrap_err().to_string();
        assert!(!error.contains("chmod"), "{error}");
    }

    #[test]
    #[ignore = "needs root: cargo xtask test"]
    fn a_grant_of_another_users_is_refused() {
        let folder = Folder::new("grant-owner");
        let path = folder.0.join("grant.json");
        example().save(&path).unwrap();
        chown(&path, Some(65534), None).unwrap();
        let error = GrantFile::load(&path).unwrap_err().to_string();
        assert!(
            error.contains("belongs to user 65534") && error.contains("sudo chown 0 "),
            "{error}"
        );
        // It may be replaced, as the directory is ours.
        assert_eq!(example().save(&path).unwrap(), Some(example()));
        assert_eq!(GrantFile::load(&path).unwrap(), example());
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
