//! A process that forks after it has opened its hosts: in the child every call is refused at once
//! and a drop does nothing; the parent goes on.

use std::process::Command;

use rma_lab::{Lab, LabConfig, Scratch};

#[test]
fn a_child_is_refused_at_once_and_its_parent_goes_on_over_udp() {
    let output = Command::new(env!("CARGO_BIN_EXE_forked-host")).arg("udp").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_is_refused_at_once_and_its_parent_goes_on_over_xdp() {
    let (lab, scratch) = (Lab::new(&LabConfig::default()).unwrap(), Scratch::new());
    let output = {
        let _inside = lab.a().enter().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forked-host"));
        command.args([Lab::INTERFACE, &Lab::A_V4.to_string()]).arg(scratch.path());
        command.output().unwrap()
    };
    assert!(output.status.success(), "{output:?}");
}
