//! Credentials as files, and what becomes of it when these change.
//!
//! | file | holds |
//! |---|---|
//! | `cert.pem` | one's own certificate, and those between it and the root |
//! | `key.pem` | its private key; others than its owner and group may not read it |
//! | `bundle.pem` | the roots of one's own trust domain |
//! | `bundles/DOMAIN.pem` | the roots of another; the folder need not be there |
//!
//! Files are compared by what is in them, as mounted secrets are links that move. A file may be
//! read while it is written, and one that is cut between two certificates looks whole: so what has
//! changed is taken when two looks in a row see the same, and it is in order. Until then, what was
//! taken before holds. Time is an argument.

use core::time::Duration;
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rma_core::time::Instant;
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::{
    cause::Cause,
    tls::{
        credentials::{Credentials, CredentialsError, identity},
        pem::{self, PemError},
        refused::CertificateRefused,
        trust::{Trust, TrustError},
    },
};

/// How often files are looked at. Longer, and new credentials are taken later; shorter, and two
/// looks may see the same half of a file.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The longest file in octets: some hundred roots.
pub const FILE_LEN_MAX: u64 = 1 << 18;

/// The most trust domains beside one's own.
pub const DOMAINS_MAX: usize = 256;

/// The endings of files of certificates, in lower case. All but the first are refused: a bundle
/// that is left aside in silence is missed when its domain's peers come.
const LIKE_BUNDLES: [&str; 7] = ["pem", "crt", "cer", "der", "p7b", "p12", "pfx"];

/// The mode bits that a private key must not have: those write it as a group, or anything as
/// strangers.
const KEY_MODE_FORBIDDEN: u32 = 0o027;

/// The reason why a directory holds no credentials.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: Cause,
    },
    /// A file is too long.
    #[error("{} is longer than {FILE_LEN_MAX} octets", path.display())]
    Length {
        /// The file.
        path: PathBuf,
    },
    /// Strangers may read the key.
    #[error("{} has mode {mode:04o}, so others may read or change the key; chmod 600 it", path.display())]
    Mode {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file is not PEM, not whole, or of something else.
    #[error("{}: {why}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: PemError,
    },
    /// There are too many trust domains.
    #[error("{} has more than {DOMAINS_MAX} bundles", path.display())]
    Domains {
        /// The folder of bundles.
        path: PathBuf,
    },
    /// The bundle's name is that of no trust domain.
    #[error("{} is not named DOMAIN.pem, so it is nobody's bundle; `mv` it", path.display())]
    Name {
        /// The bundle.
        path: PathBuf,
    },
    /// The roots are none.
    #[error("{}: {why}", path.display())]
    Trust {
        /// The bundle.
        path: PathBuf,
        /// The fault.
        why: TrustError,
    },
    /// Certificate and key prove nothing.
    #[error("{}: {why}", path.display())]
    Credentials {
        /// The certificate's file, or the key's.
        path: PathBuf,
        /// The fault.
        why: CredentialsError,
    },
    /// Nobody who trusts the same roots takes the certificate.
    #[error(
        "{}: bundle.pem beside it does not verify it: {why}; put the certificates between it and its root into cert.pem, and that root into bundle.pem", path.display()
    )]
    Unverified {
        /// The certificate's file.
        path: PathBuf,
        /// The reason.
        why: CertificateRefused,
    },
}

/// The source of credentials: paths are of directories, as this module says.
#[derive(Clone, Debug)]
pub enum CredentialsFrom {
    /// A directory. It is read anew when its files change.
    Directory(PathBuf),
    /// Memory. They never change.
    Memory(Credentials),
}

impl<T: AsRef<Path> + ?Sized> From<&T> for CredentialsFrom {
    fn from(path: &T) -> Self {
        Self::Directory(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for CredentialsFrom {
    fn from(path: PathBuf) -> Self {
        Self::Directory(path)
    }
}

impl From<Credentials> for CredentialsFrom {
    fn from(credentials: Credentials) -> Self {
        Self::Memory(credentials)
    }
}

/// The contents of a directory's files.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    chain: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
    bundle: Vec<u8>,
    /// Of other trust domains, by their files.
    bundles: Vec<(PathBuf, Vec<u8>)>,
}

/// A directory of credentials, looked at again and again.
pub struct Directory {
    path: PathBuf,
    /// The contents that the present credentials were read from.
    held: Contents,
    /// The result of the last look, if it was another.
    seen: Option<Result<Contents, DirectoryError>>,
    /// Whether that has been told.
    is_told: bool,
    /// When to look next; none before the first time.
    next: Option<Instant>,
}

impl core::fmt::Debug for Directory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Directory").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Directory {
    /// Reads the credentials in the directory `path`.
    ///
    /// # Errors
    /// If a file is not there, not whole, not private, or does not go with the others.
    pub fn open(path: &Path) -> Result<(Self, Credentials), DirectoryError> {
        let held = Contents::read(path)?;
        let credentials = held.credentials(path)?;
        let path = path.to_owned();
        Ok((Self { path, held, seen: None, is_told: false, next: None }, credentials))
    }

    /// When the files must be looked at again, if they have been before.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Looks at the files, if it is time to. New credentials are given once; an error once for each
    /// state that the files are in, and the credentials from before go on.
    #[must_use]
    pub fn poll(&mut self, now: Instant) -> Option<Result<Credentials, DirectoryError>> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + LOOK_EVERY);
        let look = Contents::read(&self.path);
        if look.as_ref() == Ok(&self.held) {
            self.seen = None;
            return None;
        }
        if self.seen.as_ref() != Some(&look) {
            (self.seen, self.is_told) = (Some(look), false);
            return None;
        }
        if core::mem::replace(&mut self.is_told, true) {
            return None;
        }
        Some(look.and_then(|contents| {
            let credentials = contents.credentials(&self.path)?;
            self.held = contents;
            Ok(credentials)
        }))
    }
}

impl Contents {
    fn read(path: &Path) -> Result<Self, DirectoryError> {
        let (chain, _) = read(path.join("cert.pem"))?;
        let key_path = path.join("key.pem");
        let (key, mode) = read(key_path.clone())?;
        let key = Zeroizing::new(key);
        if mode & KEY_MODE_FORBIDDEN != 0 {
            return Err(DirectoryError::Mode { path: key_path, mode });
        }
        let (bundle, _) = read(path.join("bundle.pem"))?;
        let folder = path.join("bundles");
        let failed =
            |error: io::Error| DirectoryError::Read { path: folder.clone(), why: error.into() };
        let mut paths = Vec::new();
        match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            entries => {
                for entry in entries.map_err(failed)? {
                    let path = entry.map_err(failed)?.path();
                    // Else it is an editor's, or of whoever mounts secrets.
                    let extension = path.extension().map(OsStr::to_ascii_lowercase);
                    if extension.is_some_and(|it| LIKE_BUNDLES.map(OsStr::new).contains(&&*it)) {
                        paths.push(path);
                    }
                    if paths.len() > DOMAINS_MAX {
                        return Err(DirectoryError::Domains { path: folder });
                    }
                }
            }
        }
        paths.sort();
        let bundles = paths.into_iter().map(|path| Ok((path.clone(), read(path)?.0)));
        Ok(Self { chain, key, bundle, bundles: bundles.collect::<Result<_, _>>()? })
    }

    fn credentials(&self, path: &Path) -> Result<Credentials, DirectoryError> {
        let [chain_path, key_path, bundle_path] =
            ["cert.pem", "key.pem", "bundle.pem"].map(|it| path.join(it));
        let wrong = |why: CredentialsError| match why {
            CredentialsError::OtherKey { .. } | CredentialsError::Key { .. } => {
                DirectoryError::Credentials { path: key_path.clone(), why }
            }
            why => DirectoryError::Credentials { path: chain_path.clone(), why },
        };
        let chain = certificates(&chain_path, &self.chain)?;
        let identity = identity(&chain).map_err(wrong)?;
        let trusted = |trust: Trust, domain: &str, path: &Path, bundle: &[u8]| {
            let with = trust.with(domain, certificates(path, bundle)?);
            with.map_err(|why| DirectoryError::Trust { path: path.to_owned(), why })
        };
        let mut trust = trusted(Trust::none(), identity.domain(), &bundle_path, &self.bundle)?;
        for (path, bundle) in &self.bundles {
            let domain = path.file_stem().and_then(OsStr::to_str);
            let domain = domain.filter(|_| path.extension() == Some(OsStr::new("pem")));
            let domain = domain.ok_or_else(|| DirectoryError::Name { path: path.clone() })?;
            trust = trusted(trust, domain, path, bundle)?;
        }
        let key = pem::private_key(&self.key)
            .map_err(|why| DirectoryError::Pem { path: key_path.clone(), why })?;
        let credentials = Credentials::new(chain, key, trust).map_err(wrong)?;
        let verified = credentials.verify_chain();
        verified.map_err(|why| DirectoryError::Unverified { path: chain_path.clone(), why })?;
        Ok(credentials)
    }
}

/// Reads a file, and its permissions.
fn read(path: PathBuf) -> Result<(Vec<u8>, u32), DirectoryError> {
    let read = || {
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        // All at once, so that no copy of a key is left behind by a buffer that grows.
        let len = metadata.len().min(FILE_LEN_MAX) as usize;
        let mut contents = Vec::with_capacity(len + 64);
        file.take(FILE_LEN_MAX + 1).read_to_end(&mut contents)?;
        Ok((contents, metadata.mode() & 0o7777))
    };
    match read() {
        Ok((contents, _)) if contents.len() as u64 > FILE_LEN_MAX => {
            Err(DirectoryError::Length { path })
        }
        Ok((contents, mode)) => Ok((contents, mode)),
        Err(error) => {
            let error: io::Error = error;
            Err(DirectoryError::Read { path, why: error.into() })
        }
    }
}

fn certificates(
    path: &Path,
    contents: &[u8],
) -> Result<Vec<CertificateDer<'static>>, DirectoryError> {
    pem::certificates(contents).map_err(|why| DirectoryError::Pem { path: path.to_owned(), why })
}
