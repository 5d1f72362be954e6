//! The file with the keys of other hosts' regions, so that a service that starts again goes on.
//!
//! Contract: the file is replaced as a whole, on the disk before [`KeyFile::write`] returns. Only
//! its owner may read it. It is text, for people who must see what is in it.

use core::{fmt::Write as _, time::Duration};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rma_core::{
    addr::{HostAddr, LocalAddresses},
    region::RegionId,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Deserializer, de::Error as _};
use zeroize::Zeroizing;

use crate::{
    catalog::Region,
    name::RegionName,
    rotation::Schedule,
    secret::{KEY_LEN, RegionSecret},
};

/// The reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("the file of region keys {} cannot be {doing}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The system's reason.
        why: io::Error,
    },
    /// Another service has it.
    #[error("another service has the file of region keys {}: give each a file of its own", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Others may read it.
    #[error("others than its owner may read the file of region keys {0}: chmod 600 {0}", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
    },
    /// Its text says something else.
    #[error(
        "the file of region keys {} is not what a service has written: {why}; without it, have the owners publish their \
         regions anew", path.display()
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

/// The keys of a region: what it goes by, or may go by.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) name: RegionName,
    pub(super) region: Region,
    pub(super) schedule: Schedule,
    pub(super) present: RegionSecret,
    pub(super) next: Option<RegionSecret>,
}

/// The file.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    /// Locked as long as this is there, as two services would write each other's keys away. Not the
    /// file itself, which is replaced.
    _lock: File,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    region: Vec<RegionText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionText {
    name: String,
    responders: Vec<String>,
    id: u32,
    len: u64,
    every_secs: u64,
    present: Hex,
    next: Option<Hex>,
}

/// A key as hexadecimal digits.
struct Hex(RegionSecret);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        secret(&text).map(Self).ok_or_else(|| D::Error::custom("no key"))
    }
}

impl KeyFile {
    /// The file at `path`, and what is in it. It is made if there is none.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Keys>), KeyFileError> {
        let file = Self { path: path.to_owned(), _lock: lock(path)? };
        let text = match fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                file.write(core::iter::empty())?;
                return Ok((file, Vec::new()));
            }
            Err(why) => return Err(file.failed("read", why)),
        };
        let mode = fs::metadata(path).map_err(|why| file.failed("read", why))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode { path: file.path });
        }
        let wrong = |why| KeyFileError::Text { path: path.to_owned(), why };
        // Not the parser's own words: they would show a line, and so a key.
        let Text { region } = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |it| text[..it.start].lines().count());
            wrong(format!("line {at}"))
        })?;
        let keys = region.into_iter().map(|it| {
            let name = it.name.clone();
            keys(it).ok_or_else(|| wrong(format!("region {name:?}")))
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        Ok((file, keys))
    }

    /// Replaces what is in the file.
    pub(super) fn write(&self, all: impl Iterator<Item = Keys>) -> Result<(), KeyFileError> {
        let mut text = Zeroizing::new(String::new());
        for Keys { name, region, schedule, present, next } in all {
            let responders: Vec<_> = region.responders.iter().map(|it| it.to_string()).collect();
            let (id, len, every) = (region.id.to_bits(), region.len, schedule.period().as_secs());
            let _ = write!(
                text,
                "[[region]]\nname = \"{name}\"\nresponders = {responders:?}\nid = {id}\nlen = {len}\nevery_secs = {every}\n\
                 present = \"{}\"\n",
                *hex(&present)
            );
            if let Some(next) = next {
                let _ = writeln!(text, "next = \"{}\"", *hex(&next));
            }
        }
        self.replace(text.as_bytes()).map_err(|why| self.failed("written", why))
    }

    fn replace(&self, octets: &[u8]) -> io::Result<()> {
        let temporary = beside(&self.path, ".new");
        // One that a crash has left may have another mode, or be somebody's link.
        match fs::remove_file(&temporary) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(octets)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let directory = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn failed(&self, doing: &'static str, why: io::Error) -> KeyFileError {
        KeyFileError::File { path: self.path.clone(), doing, why }
    }
}

/// The path with something behind its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(path: &Path) -> Result<File, KeyFileError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let failed = |why| KeyFileError::File { path: path.to_owned(), doing: "locked", why };
    let file = options.open(beside(path, ".lock")).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(KeyFileError::Locked { path: path.to_owned() }),
        Err(why) => Err(failed(why.into())),
    }
}

fn keys(text: RegionText) -> Option<Keys> {
    let mut responders = LocalAddresses::default();
    for responder in &text.responders {
        responders.insert(responder.parse::<HostAddr>().ok()?);
    }
    Some(Keys {
        name: text.name.parse().ok()?,
        region: Region { responders, id: RegionId::from_bits(text.id), len: text.len },
        schedule: Schedule::every(Duration::from_secs(text.every_secs)),
        present: text.present.0,
        next: text.next.map(|it| it.0),
    })
}

fn hex(secret: &RegionSecret) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_LEN));
    for octet in secret.region_key().expose() {
        let _ = write!(text, "{octet:02x}");
    }
    text
}

fn secret(hex: &str) -> Option<RegionSecret> {
    let mut octets = [0; KEY_LEN];
    if hex.len() != 2 * KEY_LEN || !hex.is_ascii() {
        return None;
    }
    for (octet, at) in octets.iter_mut().zip((0..).step_by(2)) {
        *octet = u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?;
    }
    Some(RegionSecret::new(&mut octets))
}
