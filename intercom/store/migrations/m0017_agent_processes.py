"""Which processes are agents', so that a server's death makes none of them an operator; and operators' terminals."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute(
        """
        create table agent_process (
            pid integer not null,
            started integer not null,
            boot text not null,
            leader integer not null,
            leader_started integer not null,
            role text not null check (role in ('client', 'driver', 'ancestor', 'started')),
            session_id text not null default '',
            recorded_at text not null,
            primary key (boot, pid, started, session_id)
        )
        """
    )
    db.execute(
        """
        create table operator_terminal (
            boot text not null,
            leader integer not null,
            leader_started integer not null,
            terminal text not null,
            first_at text not null,
            primary key (boot, leader, leader_started, terminal)
        )
        """
    )
