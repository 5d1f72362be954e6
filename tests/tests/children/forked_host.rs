//! A process that forks after it has opened its hosts: in the child every call is refused at once
//! and a drop does nothing; the parent goes on.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rma_lab::{Lab, LabConfig, Scratch};

use super::turn;

/// The program, with the credentials of some client, which it finds in `directory`.
fn forked_host(directory: &Path) -> Command {
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let made = "a key can be made";
    let root = CertifiedIssuer::self_signed(root, KeyPair::generate().expect(made)).expect(made);
    let mut params = CertificateParams::default();
    let id = "spiffe://example.org/client".try_into().expect("an ASCII URI");
    params.subject_alt_names = vec![SanType::URI(id)];
    let key = KeyPair::generate().expect(made);
    let certificate = params.signed_by(&key, &root).expect(made).pem();
    let path = directory.join("key.pem");
    let files = [
        (directory.join("cert.pem"), certificate),
        (directory.join("bundle.pem"), root.pem()),
        (path.clone(), key.serialize_pem()),
    ];
    files.iter().for_each(|(path, pem)| fs::write(path, pem).expect("it can be written"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forked-host"));
    command.arg(directory);
    command
}

#[test]
fn a_child_is_refused_at_once_and_its_parent_goes_on_over_udp() {
    let _turn = turn();
    let scratch = Scratch::new();
    let output = forked_host(scratch.path()).arg("udp").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_is_refused_at_once_and_its_parent_goes_on_over_xdp() {
    let _turn = turn();
    let (lab, scratch) = (Lab::new(&LabConfig::default()).unwrap(), Scratch::new());
    let output = {
        let _inside = lab.a().enter().unwrap();
        let mut command = forked_host(scratch.path());
        command.args([Lab::INTERFACE, &Lab::A_V4.to_string()]).arg(scratch.path());
        command.output().unwrap()
    };
    assert!(output.status.success(), "{output:?}");
}
