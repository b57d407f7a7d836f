//! What all services have in common: who gets which behaviour, and what came.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Mutex,
    time::Instant,
};

use serde_json::Value;

use super::{
    super::{SOON, eventually, sink::Reply},
    Behaviour,
};

/// A message as it came, whatever became of it. Its place in the list is the order.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) body: Value,
    /// What the caller calls it: `biz_opaque_callback_data`, or the `id` at Evolution Go.
    pub(crate) our_id: Option<String>,
    /// What the service calls it, if it was sent to its recipient.
    pub(crate) sent_id: Option<String>,
}

/// Which behaviour who gets; the first that is there: by recipient, the next, the part, the rest.
#[derive(Debug, Default)]
struct Script {
    always: HashMap<String, Behaviour>,
    first: HashMap<String, VecDeque<Behaviour>>,
    next: VecDeque<Behaviour>,
    part: Option<(u64, Behaviour)>,
    seen: HashSet<String>,
    rest: Behaviour,
}

/// Takes messages.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    script: Mutex<Script>,
    messages: Mutex<Vec<Message>>,
}

impl Desk {
    /// What one recipient's messages get, from now on.
    pub(crate) fn always(&self, to: &str, behaviour: Behaviour) {
        self.script.lock().unwrap().always.insert(to.to_owned(), behaviour);
    }

    /// What the first messages to a recipient get, one after the other; then it is as with all.
    pub(crate) fn first(&self, to: &str, behaviours: impl IntoIterator<Item = Behaviour>) {
        let behaviours = behaviours.into_iter().collect();
        self.script.lock().unwrap().first.insert(to.to_owned(), behaviours);
    }

    /// What the next messages get, whoever they are for.
    pub(crate) fn next(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.script.lock().unwrap().next.extend(behaviours);
    }

    /// What the first message gets of about so many of a hundred recipients. It is the same ones
    /// whenever they come, also after a restart of the caller.
    pub(crate) fn part(&self, percent: u64, behaviour: Behaviour) {
        self.script.lock().unwrap().part = Some((percent, behaviour));
    }

    /// What all others get.
    pub(crate) fn rest(&self, behaviour: Behaviour) {
        self.script.lock().unwrap().rest = behaviour;
    }

    /// All messages that came, in order.
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    /// How many came.
    pub(crate) fn count(&self) -> usize {
        self.messages.lock().unwrap().len()
    }

    /// Waits until so many have come.
    pub(crate) async fn arrived(&self, count: usize) -> Vec<Message> {
        eventually(SOON, || async { (self.count() >= count).then(|| self.messages()) }).await
    }

    /// What each recipient was sent: the ids in the order in which they went out, with repetitions.
    pub(crate) fn sent(&self) -> BTreeMap<String, Vec<String>> {
        let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for message in self.messages.lock().unwrap().iter() {
            if let Some(id) = &message.sent_id {
                sent.entry(message.to.clone()).or_default().push(id.clone());
            }
        }
        sent
    }

    /// Does with a message what the script says. `name` is what the service would call it, `done`
    /// the answer when it was sent.
    pub(super) fn take(&self, mut message: Message, name: String, done: (u16, Value)) -> Reply {
        let behaviour = self.script.lock().unwrap().choose(&message.to);
        let (is_sent, reply) = play(behaviour, done);
        message.sent_id = is_sent.then_some(name);
        self.messages.lock().unwrap().push(message);
        reply
    }
}

impl Script {
    fn choose(&mut self, to: &str) -> Behaviour {
        let is_new = self.seen.insert(to.to_owned());
        if let Some(behaviour) = self.always.get(to) {
            return behaviour.clone();
        }
        let queued = self.first.get_mut(to).and_then(VecDeque::pop_front);
        if let Some(behaviour) = queued.or_else(|| self.next.pop_front()) {
            return behaviour;
        }
        match &self.part {
            Some((percent, behaviour)) if is_new && is_in_part(to, *percent) => behaviour.clone(),
            _ => self.rest.clone(),
        }
    }
}

/// Whether a recipient belongs to so many of a hundred.
pub(crate) fn is_in_part(to: &str, percent: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    to.hash(&mut hasher);
    hasher.finish() % 100 < percent
}

/// Whether the message goes out, and what the caller sees.
fn play(behaviour: Behaviour, done: (u16, Value)) -> (bool, Reply) {
    match behaviour {
        Behaviour::Take => (true, answer(done.0, &done.1)),
        Behaviour::Answer(status, body) => (false, answer(status, &body)),
        Behaviour::TakeThenAnswer(status, body) => (true, answer(status, &body)),
        Behaviour::HangAfterBody => (true, Reply::Hang),
        Behaviour::CloseAfterBody => (true, Reply::Close),
        Behaviour::CloseBefore => (false, Reply::Close),
        Behaviour::After(wait, then) => {
            let (is_sent, reply) = play(*then, done);
            (is_sent, reply.after(wait))
        }
    }
}

/// An answer with JSON.
pub(super) fn answer(status: u16, body: &Value) -> Reply {
    let reply = Reply::status(status).header("content-type", "application/json; charset=utf-8");
    reply.body(body.to_string())
}
