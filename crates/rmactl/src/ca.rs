//! Certificates of a trust domain, for a lab: a root, and identities that it proves.
//!
//! The root's key lies beside its certificate, in the clear, for its owner alone. What is issued is
//! a directory as `rma_keys::tls::directory` reads it.

use core::time::Duration;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rma_keys::{
    identity::{IdentityError, SpiffeId},
    io::clock,
    tls::{
        certificate::{Certificate, DerError},
        directory::{Directory, DirectoryError},
        pem::{self, PemError},
    },
};
use rustls::pki_types::CertificateDer;

use crate::files::{self, FileError};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a root is good for. Longer than a lab lasts.
const ROOT_DAYS: u32 = 3650;

/// How long before now a certificate is good already: clocks differ.
const EARLIER: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Makes the root of a trust domain: ca.pem and ca.key. Guard ca.key: its holder can issue any
    /// identity
    Init {
        /// Trust domain, for example example.org
        #[arg(long)]
        domain: String,
        /// Directory to write the root to
        #[arg(long)]
        dir: PathBuf,
    },
    /// Issues a certificate for an identity: cert.pem, key.pem and bundle.pem
    Issue {
        /// SPIFFE ID, for example spiffe://example.org/kv/server
        #[arg(long)]
        id: String,
        /// Directory of the root
        #[arg(long, default_value = "ca")]
        ca: PathBuf,
        /// Directory to write the files to
        #[arg(long)]
        dir: PathBuf,
        /// Days for which the certificate is valid
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=366))]
        days: u32,
        /// Replace existing files
        #[arg(long)]
        renew: bool,
    },
    /// Shows the certificates in a file
    Show {
        /// PEM file
        file: PathBuf,
    },
}

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CaError {
    /// A file is in the way, or not there.
    #[error(transparent)]
    File(#[from] FileError),
    /// The domain is none.
    #[error("{domain:?} is no trust domain: {why}")]
    Domain {
        /// The domain.
        domain: String,
        /// The fault.
        why: IdentityError,
    },
    /// The identity is none.
    #[error("{id:?} is no identity: {why}")]
    Identity {
        /// The identity.
        id: String,
        /// The fault.
        why: IdentityError,
    },
    /// The identity is of another domain.
    #[error("{id} is not of {domain}, whose root this is; make one with `rmactl ca init`")]
    OtherDomain {
        /// The identity.
        id: SpiffeId,
        /// The root's domain.
        domain: String,
    },
    /// There is no certificate in the file.
    #[error("{}: {why}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: PemError,
    },
    /// A certificate cannot be read.
    #[error("certificate {number} in {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its number in the file, from 1.
        number: usize,
        /// The fault.
        why: DerError,
    },
    /// It is no root that `ca init` has made.
    #[error("{} is no root of `rmactl ca init`: it names no spiffe://DOMAIN", path.display())]
    NoRoot {
        /// The file.
        path: PathBuf,
    },
    /// The root's key is another's.
    #[error("{} is not the key of ca.pem beside it", path.display())]
    OtherKey {
        /// The key's file.
        path: PathBuf,
    },
    /// The certificate cannot be made.
    #[error("the certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The issued certificate is not good.
    #[error(transparent)]
    Issued(#[from] DirectoryError),
}

pub(crate) fn run(command: &Command) -> Result<String, CaError> {
    match command {
        Command::Init { domain, dir } => init(domain, dir),
        Command::Issue { id, ca, dir, days, renew } => issue(id, ca, dir, *days, *renew),
        Command::Show { file } => show(file),
    }
}

fn init(domain: &str, dir: &Path) -> Result<String, CaError> {
    let wrong = |why| CaError::Domain { domain: domain.to_owned(), why };
    let member: SpiffeId = format!("spiffe://{domain}/-").parse().map_err(wrong)?;
    if member.domain() != domain {
        return Err(wrong(IdentityError::NoPath));
    }
    let (certificate, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    files::absent(&[&certificate, &key], "take another --dir")?;
    files::directory(dir)?;
    let root = CertifiedIssuer::self_signed(root_params(domain)?, KeyPair::generate()?)?;
    files::write(&[
        (&key, &root.key().serialize_pem(), 0o600),
        (&certificate, &root.pem(), 0o644),
    ])?;
    Ok(format!("{} is the root of {domain}; {} is its key\n", certificate.display(), key.display()))
}

fn issue(id: &str, ca: &Path, dir: &Path, days: u32, renew: bool) -> Result<String, CaError> {
    let wrong = |why| CaError::Identity { id: id.to_owned(), why };
    let id: SpiffeId = id.parse().map_err(wrong)?;
    let [certificate, key, bundle] = ["cert.pem", "key.pem", "bundle.pem"].map(|it| dir.join(it));
    if !renew {
        files::absent(&[&certificate, &key, &bundle], "say --renew to replace it")?;
    }
    let (root_path, root_key_path) = (ca.join("ca.pem"), ca.join("ca.key"));
    let root_pem = files::read(&root_path)?;
    let roots = certificates(&root_path, root_pem.as_bytes())?;
    let (root_der, root) = &roots[0];
    let domain = root.uris.iter().find_map(|uri| uri.strip_prefix("spiffe://"));
    let domain = domain.ok_or(CaError::NoRoot { path: root_path })?;
    if id.domain() != domain {
        return Err(CaError::OtherDomain { id, domain: domain.to_owned() });
    }
    let root_key = KeyPair::from_pem(&files::read(&root_key_path)?)?;
    let public = root_key.public_key_raw();
    if !root_der.windows(public.len()).any(|it| it == public) {
        return Err(CaError::OtherKey { path: root_key_path });
    }
    let issuer = Issuer::new(root_params(domain)?, root_key);
    let mut params = good_for(CertificateParams::default(), days);
    params.subject_alt_names = vec![SanType::URI(id.as_str().try_into()?)];
    params.distinguished_name.push(DnType::CommonName, "1RMA");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let own = KeyPair::generate()?;
    let issued = params.signed_by(&own, &issuer)?;
    files::directory(dir)?;
    // A program that reads them anew finds a key and a certificate that belong together.
    files::write(&[
        (&key, &own.serialize_pem(), 0o600),
        (&certificate, &issued.pem(), 0o644),
        (&bundle, &root_pem, 0o644),
    ])?;
    let (_, credentials) = Directory::open(dir)?;
    Ok(format!(
        "{} is {}, until {}\n",
        dir.display(),
        credentials.identity(),
        credentials.not_after()
    ))
}

fn show(path: &Path) -> Result<String, CaError> {
    let shown = certificates(path, &files::octets(path)?)?;
    Ok(shown.iter().map(|(_, certificate)| certificate.to_string()).collect())
}

/// Makes the parameters of a domain's root. Made anew, it is the same but for its dates.
fn root_params(domain: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = good_for(CertificateParams::default(), ROOT_DAYS);
    params.distinguished_name.push(DnType::CommonName, format!("1RMA lab {domain}"));
    params.subject_alt_names = vec![SanType::URI(format!("spiffe://{domain}").try_into()?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn good_for(mut params: CertificateParams, days: u32) -> CertificateParams {
    let millis = u64::try_from(clock::now().wall.unix_millis()).unwrap_or(0);
    let now = date_time_ymd(1970, 1, 1) + Duration::from_millis(millis);
    (params.not_before, params.not_after) = (now - EARLIER, now + DAY * days);
    params
}

/// The certificates of a file, at least one.
fn certificates(
    path: &Path,
    octets: &[u8],
) -> Result<Vec<(CertificateDer<'static>, Certificate)>, CaError> {
    let read = |(number, der): (usize, CertificateDer<'static>)| {
        let unreadable = |why| CaError::Unreadable { path: path.to_owned(), number, why };
        let certificate = Certificate::read(&der).map_err(unreadable);
        certificate.map(|certificate| (der, certificate))
    };
    let sections = pem::certificates(octets);
    let sections = sections.map_err(|why| CaError::Pem { path: path.to_owned(), why })?;
    (1..).zip(sections).map(read).collect()
}
