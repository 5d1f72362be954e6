//! Credentials as files: what is refused, what is waited for, and what goes on meanwhile.

use core::time::Duration;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rma_core::time::Instant;
use rma_keys::tls::directory::{Directory, DirectoryError};

use crate::ca::{CLIENT, Ca, SERVER, params};

/// A directory that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rma-keys-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn says(path: &Path) -> String {
    Directory::open(path).map(drop).unwrap_err().to_string()
}

#[test]
fn a_key_that_strangers_may_read_is_refused() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    ca.write(scratch.path(), CLIENT);
    let key = scratch.path().join("key.pem");
    let chmod = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o644, 0o604, 0o620, 0o602, 0o666] {
        chmod(mode);
        let error = says(scratch.path());
        assert!(error.contains(&format!("key.pem has mode {mode:04o}")), "{error}");
    }
    for mode in [0o600, 0o640, 0o440, 0o400] {
        chmod(mode);
        let (_, credentials) = Directory::open(scratch.path()).unwrap();
        assert_eq!(credentials.identity().as_str(), CLIENT);
    }
}

#[test]
fn files_that_are_missing_cut_off_or_anothers_are_refused_by_name() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    let path = scratch.path();
    for file in ["cert.pem", "key.pem", "bundle.pem"] {
        ca.write(path, CLIENT);
        let whole = fs::read_to_string(path.join(file)).unwrap();
        fs::remove_file(path.join(file)).unwrap();
        let error = says(path);
        assert!(error.contains(file) && error.contains("not found"), "{error}");
        for cut in [whole.len() / 2, 40] {
            ca.write(path, CLIENT);
            fs::write(path.join(file), &whole[..cut]).unwrap();
            let error = says(path);
            assert!(error.contains(file) && error.contains("cut off"), "{error}");
        }
        fs::write(path.join(file), vec![b'x'; 1 << 19]).unwrap();
        assert!(says(path).contains("longer than"), "{}", says(path));
    }
    ca.write(path, CLIENT);
    let other = ca.issue(&params(&[CLIENT]));
    fs::write(path.join("key.pem"), &other.key_pem).unwrap();
    assert!(says(path).contains("does not go with"), "{}", says(path));
    ca.write(path, CLIENT);
    fs::write(path.join("bundle.pem"), "").unwrap();
    assert!(says(path).contains("bundle.pem: it is empty"), "{}", says(path));
}

#[test]
fn other_domains_have_bundles_of_their_own() {
    let (ca, theirs, scratch) = (Ca::new("root"), Ca::new("theirs"), Scratch::new());
    ca.write(scratch.path(), SERVER);
    let bundles = scratch.path().join("bundles");
    fs::create_dir(&bundles).unwrap();
    fs::write(bundles.join("b.org.pem"), theirs.pem()).unwrap();
    fs::write(bundles.join("b.org.pem~"), "of an editor").unwrap();
    let (_, credentials) = Directory::open(scratch.path()).unwrap();
    let domains: Vec<_> = credentials.trust().domains().collect();
    assert_eq!(domains, ["b.org", "example.org"]);
    fs::write(bundles.join("B.pem"), theirs.pem()).unwrap();
    assert!(says(scratch.path()).contains("\"B\" is no name"), "{}", says(scratch.path()));
}

#[test]
fn a_changed_file_is_taken_when_two_looks_agree() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    ca.write(scratch.path(), CLIENT);
    let (mut directory, first) = Directory::open(scratch.path()).unwrap();
    assert!(directory.poll(at(0)).is_none(), "nothing has changed");
    ca.write(scratch.path(), SERVER);
    assert!(directory.poll(at(9)).is_none(), "it is not looked at before its time");
    assert!(directory.poll(at(10)).is_none(), "it is seen once");
    // A bundle that grows between the looks, and is cut between two certificates.
    let both = format!("{}{}", ca.pem(), Ca::new("next").pem());
    fs::write(scratch.path().join("bundle.pem"), &both).unwrap();
    assert!(directory.poll(at(20)).is_none(), "it is something else again");
    let taken = directory.poll(at(30)).expect("two looks agree").unwrap();
    assert_eq!((first.identity().as_str(), taken.identity().as_str()), (CLIENT, SERVER));
    assert!(directory.poll(at(40)).is_none(), "it is given once");
}

#[test]
fn a_broken_file_is_told_once_and_what_was_taken_before_goes_on() {
    let (ca, scratch) = (Ca::new("root"), Scratch::new());
    ca.write(scratch.path(), CLIENT);
    let (mut directory, _) = Directory::open(scratch.path()).unwrap();
    let good = fs::read(scratch.path().join("cert.pem")).unwrap();
    fs::write(scratch.path().join("cert.pem"), &good[..good.len() / 2]).unwrap();
    assert!(directory.poll(at(0)).is_none());
    let error = directory.poll(at(10)).expect("two looks agree").unwrap_err();
    assert!(matches!(error, DirectoryError::Pem { .. }), "{error}");
    assert!((2..9).all(|look| directory.poll(at(10 * look)).is_none()), "it is told once");
    // Gone for the moment of a rename, as it were, and longer.
    fs::remove_file(scratch.path().join("cert.pem")).unwrap();
    assert!(directory.poll(at(90)).is_none());
    let error = directory.poll(at(100)).expect("two looks agree").unwrap_err();
    assert!(matches!(error, DirectoryError::Read { .. }), "{error}");
    fs::write(scratch.path().join("cert.pem"), &good).unwrap();
    assert!(directory.poll(at(110)).is_none(), "it is what is held");
    ca.write(scratch.path(), SERVER);
    assert!(directory.poll(at(120)).is_none());
    assert_eq!(directory.poll(at(130)).unwrap().unwrap().identity().as_str(), SERVER);
}
