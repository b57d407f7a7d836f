//! Notices at once that another process has published signals, by `LISTEN` on a connection of its own.
//!
//! Only a help: a process without notifications, because its connection is lost or goes through a pooler,
//! finds the signals by polling for them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use surehook_types::ids::NodeId;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use super::pool::Connector;

/// The pause before a lost connection is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Wakes calls that wait for signals.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    pub(super) published: Arc<Notify>,
    /// The node of this process, as notifications name it.
    own_node: Arc<Mutex<Option<String>>>,
    task: Option<JoinHandle<()>>,
}

impl Notifications {
    /// Notifications of this node are of no interest here.
    pub(super) fn set_own_node(&self, node: NodeId) {
        *self.own_node.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.to_string());
    }

    /// Starts to listen, and connects again whenever the connection is lost.
    pub(super) fn listen(&mut self, connector: Arc<Connector>) {
        let (published, own_node) = (Arc::clone(&self.published), Arc::clone(&self.own_node));
        self.task = Some(tokio::spawn(async move {
            loop {
                let (sender, mut received) = mpsc::unbounded_channel();
                if let Ok(_listener) = connector.listen(sender).await {
                    while let Some(publisher) = received.recv().await {
                        let own = own_node.lock().unwrap_or_else(PoisonError::into_inner);
                        if own.as_ref() != Some(&publisher) {
                            published.notify_waiters();
                        }
                    }
                }
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }));
    }

    pub(super) fn close(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.close();
    }
}
