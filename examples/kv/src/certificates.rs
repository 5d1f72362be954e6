//! Certificates for a demo or a test, in a directory that they own: a root whose key nobody keeps,
//! and what it issues. For a deployment there is `rmactl ca`, or what issues certificates there.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Writes a directory of credentials for each identity, all of one root. Returns the directories.
///
/// # Errors
/// If a file cannot be written, or a text is no URI.
pub fn issue(directory: &Path, identities: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = || KeyPair::generate().map_err(io::Error::other);
    let root = CertifiedIssuer::self_signed(root, key()?).map_err(io::Error::other)?;
    let issue = |(number, identity): (usize, &&str)| {
        let (mut params, key) = (CertificateParams::default(), key()?);
        let uri = (*identity).try_into().map_err(io::Error::other)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &root).map_err(io::Error::other)?;
        let folder = directory.join(format!("id-{number}"));
        fs::create_dir(&folder)?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        };
        write("cert.pem", certificate.pem())?;
        write("key.pem", key.serialize_pem())?;
        write("bundle.pem", root.pem())?;
        Ok(folder)
    };
    identities.iter().enumerate().map(issue).collect()
}
