"""Actions on tables themselves."""

from collections.abc import Mapping
from typing import Any

from tests.dynamodb_memory.capacity import Consumed
from tests.dynamodb_memory.tables import Index, Table
from tests.dynamodb_memory.values import ServerError

Request = Mapping[str, Any]
Answer = dict[str, Any]


class Schema:
    """Creates, describes and deletes tables; they are ready at once."""

    tables: dict[str, Table]

    def named(self, name: str) -> Table:
        raise NotImplementedError

    def do_CreateTable(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802 - the name of the action
        name = request["TableName"]
        if name in self.tables:
            raise ServerError("ResourceInUseException", f"Table already exists: {name}")
        self.tables[name] = Table(request)
        return {"TableDescription": self._description(name)}

    def do_DeleteTable(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        self.named(request["TableName"])
        description = self._description(request["TableName"])
        del self.tables[request["TableName"]]
        return {"TableDescription": {**description, "TableStatus": "DELETING"}}

    def do_DescribeTable(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        self.named(request["TableName"])
        return {"Table": self._description(request["TableName"])}

    def do_ListTables(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        after = request.get("ExclusiveStartTableName", "")
        names = sorted(name for name in self.tables if name > after)
        limit = request.get("Limit", 100)
        more = {"LastEvaluatedTableName": names[limit - 1]} if len(names) > limit else {}
        return {"TableNames": names[:limit], **more}

    def do_UpdateTable(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        table = self.named(request["TableName"])
        for each in request.get("AttributeDefinitions", ()):
            table.types[each["AttributeName"]] = each["AttributeType"]
        for each in request.get("GlobalSecondaryIndexUpdates", ()):
            if (definition := each.get("Create")) is not None:
                index = Index(table.name, definition, table.keys)
                for key, row in list(table.everything()):
                    index.change(key, None, row.item, _nothing)
                table.add(index, definition)
        table.request.update(
            {k: v for k, v in request.items() if k not in ("TableName", "GlobalSecondaryIndexUpdates")}
        )
        return {"TableDescription": self._description(table.name)}

    def do_UpdateTimeToLive(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        table, wanted = self.named(request["TableName"]), request["TimeToLiveSpecification"]
        table.ttl = wanted["AttributeName"] if wanted["Enabled"] else None
        return {"TimeToLiveSpecification": wanted}

    def do_DescribeTimeToLive(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        ttl = self.named(request["TableName"]).ttl
        if ttl is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": ttl}}

    def do_UpdateContinuousBackups(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        wanted = request["PointInTimeRecoverySpecification"]
        self.named(request["TableName"]).backups = wanted["PointInTimeRecoveryEnabled"]
        return self.do_DescribeContinuousBackups(request, consumed)

    def do_DescribeContinuousBackups(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        status = "ENABLED" if self.named(request["TableName"]).backups else "DISABLED"
        recovery = {"PointInTimeRecoveryStatus": status}
        return {
            "ContinuousBackupsDescription": {
                "ContinuousBackupsStatus": "ENABLED",
                "PointInTimeRecoveryDescription": recovery,
            }
        }

    def do_TagResource(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        return {}

    def do_ListTagsOfResource(self, request: Request, consumed: Consumed) -> Answer:  # noqa: N802
        return {"Tags": []}

    def _description(self, name: str) -> Answer:
        table = self.named(name)
        keep = ("AttributeDefinitions", "KeySchema", "SSESpecification", "WarmThroughput", "DeletionProtectionEnabled")
        description = {each: table.request[each] for each in keep if each in table.request}
        if "SSESpecification" in table.request:
            description["SSEDescription"] = {"Status": "ENABLED", "SSEType": "KMS"}
        mode = table.request.get("BillingMode", "PROVISIONED")
        throughput = table.request.get("ProvisionedThroughput", {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0})
        definitions = table.request.get("GlobalSecondaryIndexes", ())
        indexes = [{**definition, "IndexStatus": "ACTIVE"} for definition in definitions]
        return {
            **description,
            "TableName": name,
            "TableStatus": "ACTIVE",
            "TableArn": f"arn:aws:dynamodb:local:000000000000:table/{name}",
            "ItemCount": len(table),
            "BillingModeSummary": {"BillingMode": mode},
            "ProvisionedThroughput": throughput,
            **({"GlobalSecondaryIndexes": indexes} if indexes else {}),
        }


def _nothing(place: str, key: Any, units: float) -> None:
    """Charge nothing."""
