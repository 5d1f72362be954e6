//! A mailbox, as futures: several senders, messages of any length up to its buffers', one reader.
//! Nobody has a connection, and each message names its sender.

use rma_xdp::{
    Client, Host, HostConfig, OpType, Permissions, Pid, Transfers, WaitError,
    messages::ReceiveQueueLayout,
};

const SENDERS: u32 = 3;
const MESSAGES: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Eight messages of up to 128 bytes that have come and have not been read.
    let owner = Host::open(HostConfig::udp([127, 0, 0, 33]))?;
    let layout = ReceiveQueueLayout::new(8, 128)?;
    // Events wake the thread that waits with this portal: whoever polls for this client.
    let portal = owner.portal(1)?;
    let queue = owner.waking(&portal).receive_queue(layout, Permissions::SEND)?;
    let client = Client::new(Transfers::new(portal, owner.executor_config())?);
    let mut mailbox = client.receiver(queue);

    let senders = (1..=SENDERS).map(|number| {
        let address = [127, 0, 0, 33 + number as u8];
        let pid = Pid(number); // grants name it
        let sender = Host::open(HostConfig::udp(address).with(|it| it.pid = pid))?;
        let grant = owner.grant(mailbox.region(), address.into(), pid, OpType::Send)?;
        println!("process {pid} may send up to {} bytes", grant.region_len);
        let (client, pool) = (Client::new(sender.transfers(1)?), sender.buffer_pool(1, 128)?);
        Ok(std::thread::spawn(move || {
            let _open = sender;
            let send_all = async {
                for count in 1..=MESSAGES {
                    let text = format!("message {count} of {MESSAGES}");
                    let mut message = pool.acquire().await;
                    message.set_len(text.len());
                    message.write(0, text.as_bytes()).expect("it fits");
                    // A reader that is slow, with no receive posted, is waited for: for a second,
                    // if `retry` says nothing else. Nothing is sent twice.
                    let (sent, _message) = client.send(&grant, message, count).await;
                    sent.expect("the reader goes on");
                }
            };
            client.block_on(send_all).expect("its engine has a thread");
        }))
    });
    let senders: Result<Vec<_>, rma_xdp::HostError> = senders.collect();

    let read_all = async {
        for _ in 0..u64::from(SENDERS) * MESSAGES {
            let message = mailbox.recv().await?;
            let text = String::from_utf8_lossy(&message.to_vec()).into_owned();
            println!("{}, process {}: {text}", message.initiator, message.pid);
            drop(message); // room for the next one
        }
        Ok::<_, WaitError>(())
    };
    // On any async executor, if `Client::start` made the client; or without one, as here.
    client.block_on(read_all)??;
    senders?.into_iter().for_each(|sender| sender.join().expect("all was sent"));
    Ok(())
}
