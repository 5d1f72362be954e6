//! Opens a host over AF_XDP and says how that went: for the test that runs it as another user with
//! few capabilities.
//!
//! `open-host INTERFACE ADDRESS STATE_DIR`. Its standard output is one line; it ends with 0 if the
//! host was opened.

use std::process::ExitCode;

use rma_xdp::{Host, HostConfig, config::CounterConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().expect("INTERFACE ADDRESS STATE_DIR");
    let (interface, address, state_dir) = (next(), next(), next());
    // As most machines have it for users, whatever this one has: with CAP_IPC_LOCK it does not
    // matter.
    let maximum = getrlimit(Resource::Memlock).maximum;
    let limit = Rlimit { current: Some(64 << 10), maximum };
    setrlimit(Resource::Memlock, limit).expect("a lower limit is always permitted");
    let config = HostConfig::xdp(&interface).with(|it| {
        it.addresses = vec![address.parse().expect("an address")];
        it.counter = CounterConfig::default().with(|it| it.state_dir = Some(state_dir.into()));
    });
    match Host::open(config) {
        Ok(host) => {
            println!("opened {}", host.info());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("refused: {error}");
            ExitCode::FAILURE
        }
    }
}
