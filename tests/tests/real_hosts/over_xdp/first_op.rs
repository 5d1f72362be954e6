//! The first op of a process to a host that it has not asked the way to.

use rma_lab::Lab;
use rma_tests::hosts::Setup;
use rma_xdp::{Host, OpStatus, OpType, Permissions};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_first_op_to_a_host_waits_for_the_way_to_it_and_is_not_lost() {
    for ipv6 in [false, true] {
        let setup = Setup { ipv6, ..Setup::default() };
        let lab = Lab::new(&setup.lab).unwrap();
        let [client_addr, server_addr] = setup.addresses();
        let client = {
            let _inside = lab.a().enter().unwrap();
            Host::open(setup.client(client_addr)).unwrap()
        };
        let server = {
            let _inside = lab.b().enter().unwrap();
            Host::open(setup.server(server_addr)).unwrap()
        };
        let region = server.register(4096, Permissions::READ).unwrap();
        let grant = server.grant(&region, client_addr, client.pid(), OpType::Read).unwrap();
        let local = client.register(4096, Permissions::NONE).unwrap();
        let mut portal = client.portal(4).unwrap();
        for offset in 0..4 {
            portal.read(&grant, 64 * offset, &local, 64 * offset, 64).unwrap();
        }
        for _ in 0..4 {
            assert_eq!(portal.wait().unwrap().status, OpStatus::Ok);
        }
    }
}
