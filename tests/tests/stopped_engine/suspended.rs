//! The clock runs on while the machine is suspended (WIRE 3.7): otherwise a target would apply data
//! that its initiator gave up long ago, and not even know it.

use std::process::Command;

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_suspended_hour_has_passed_on_the_clock() {
    let output = Command::new(env!("CARGO_BIN_EXE_suspended-clock")).output().unwrap();
    let (out, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let seconds: u64 = out.trim().parse().unwrap();
    assert!((3600..7200).contains(&seconds), "{seconds} s");
}
