//! One host writes and reads another's memory: register, grant, write, read, check.

use rma_xdp::{Host, HostConfig, OpStatus, OpType, Permissions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two hosts in one process, over UDP on loopback. Across machines: HostConfig::xdp("eth1").
    let server = Host::open(HostConfig::udp([127, 0, 0, 1]))?;
    let client = Host::open(HostConfig::udp([127, 0, 0, 2]))?;

    // The server registers memory and grants one process of one host the right to use it.
    let region = server.register(1 << 20, Permissions::READ | Permissions::WRITE)?;
    let grant = |op_type| server.grant(&region, [127, 0, 0, 2].into(), client.pid(), op_type);
    let (to_write, to_read) = (grant(OpType::Write)?, grant(OpType::Read)?);

    // The client writes, then reads. The server's application takes no part in it.
    let mut portal = client.portal(16)?;
    let local = client.register(4096, Permissions::NONE)?;
    local.write(0, b"one-sided")?;
    portal.write(&to_write, 4096, &local, 0, 9)?;
    assert_eq!(portal.wait()?.status, OpStatus::Ok);
    portal.read(&to_read, 4096, &local, 100, 9)?;
    let completion = portal.wait()?;

    let mut bytes = [0; 9];
    local.read(100, &mut bytes)?;
    assert_eq!((completion.status, &bytes), (OpStatus::Ok, b"one-sided"));
    println!("read in {:?}", completion.total_delay());
    Ok(())
}
