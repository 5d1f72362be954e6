//! Keys by name over AF_XDP: an owner that starts again, to which old keys and the old name of its
//! region mean nothing, and which knows no way to its clients before they ask its key service.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use rma_lab::{Lab, LabConfig};
use rma_tests::hosts::Setup;
use rma_xdp::{Host, device::xdp::Mode, keys::Schedule};

use rma_tests::keys::{HOUR, World, owners_come_and_go};

fn an_owner_is_found_again(setup: &Setup) {
    let lab = Lab::new(&LabConfig::default()).unwrap();
    let [client, server] = setup.addresses();
    let configs = [setup.client(client), setup.server(server)];
    // The network is the lab's own.
    let world = World::between(configs, (server.ip(), 7471).into());
    let inside = lab.a().enter().unwrap();
    let host = Host::open(world.client_config()).unwrap();
    let peer = world.client(&host);
    drop(inside);
    owners_come_and_go(&peer, &host, || {
        let _inside = lab.b().enter().unwrap();
        world.owner(Schedule::every(HOUR))
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_owner_that_starts_again_is_found_again_by_name() {
    an_owner_is_found_again(&Setup::default());
    an_owner_is_found_again(&Setup { mode: Mode::Generic, ipv6: true, ..Setup::default() });
}
